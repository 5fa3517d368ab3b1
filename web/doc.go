// Package web serves pages that show what is in the queues, who holds which lock, which nodes answer calls, and what is
// wrong with the server.
//
//	http.Handle("/luatomic/", web.Handler(client, &web.Options{Path: "/luatomic"}))
//
// The handler renders the pages, and the binary embeds their files: they need no build and no other host, and reading
// needs no JavaScript. Each address also answers in JSON, with ".json" after its path or with an Accept header of
// application/json.
//
// # Who may do what
//
// Without [Options.Authorize] the handler answers only this machine: the connection must come from a loopback address,
// the Host header must name one, and no proxy may be in between. Without [Options.Write] no role can change anything:
// no button is shown, and the addresses that change something answer 403. Bodies of jobs are shown only on request, to
// a role with [Bodies], and after [Options.Redact]. Tokens of locks never leave the server.
//
// A change is a POST from the same origin. It names the jobs, the fence or the state that it is meant for, and can be
// repeated. The page shows the number of jobs before the change is made.
//
// # Cost
//
// Each page is a few reads of the server, bounded in number, bytes and time: see the constants. Locks and buses are
// found by SCAN, for at most [ScanFor]. The page says so if the search ended early.
package web
