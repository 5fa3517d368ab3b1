// Package web is a page for people: what is in the queues, who holds which lock, which nodes answer calls, and what is
// wrong with the server.
//
//	http.Handle("/luatomic/", web.Handler(client, &web.Options{Path: "/luatomic"}))
//
// The page is rendered by the server and embedded in the binary: no build, no other host, and reading needs no
// JavaScript. Each address is JSON too, with ".json" behind its path or with an Accept header of application/json.
//
// # Who may do what
//
// Without [Options.Authorize] the handler answers to this machine alone: the connection comes from a loopback address,
// the Host header names one, and no proxy stands between. Without [Options.Write] nothing can be changed, whatever the
// role: no button is shown, and the addresses that change something answer 403. Bodies of jobs are shown only where
// they are asked for, to a role with [Bodies], and after [Options.Redact]. Tokens of locks never leave the server.
//
// A change is a POST of the same origin, names the jobs, the fence or the state that it is meant for, and can be
// repeated. How many jobs it is for is shown before it is made.
//
// # Cost
//
// Each page is a few reads of the server, bounded in number, bytes and time: see the constants. Locks and buses are
// found by SCAN, for at most [ScanFor]; the page says so where it ended early.
package web
