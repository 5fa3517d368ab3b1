// Package rpc calls typed methods of other processes over Redis.
//
// # Use
//
//	type User struct{ Name string }
//	getUser := rpc.NewMethod[int, User]("get-user")
//
//	bus, err := rpc.New(client, "users", nil)
//	err = getUser.Serve(bus, func(ctx context.Context, id int) (User, error) { return load(ctx, id) }, nil) // a node
//	go bus.Run(ctx) // until ctx ends
//	user, err := getUser.Call(ctx, bus, 42, nil) // on any node that serves it; an error says whether it may have run
//
// # The life of a call
//
//	caller                     server                               node
//	  │ rpc_call ───────────────▶ check node, record, PUBLISH ────────▶ handler
//	  │ ◀── sent, or no responder                                        │
//	  │ ◀──────── PUBLISH ────── accept once, store, ◀────── rpc_reply ──┘
//
// The caller chooses a node. The script checks that the node's lease holds and that its channel has a subscriber at
// that moment. So "no node serves this" is an answer and not a time-out. The reply script accepts a reply only from the
// node and attempt that were asked, and only once. It stores and publishes the reply in one step.
//
// # Who repairs what
//
// The caller keeps track of its calls, so Redis has one key for each call and no index. When the caller's connection
// was broken, the caller reads the records of its pending calls. When a node's connection was broken, the node reports
// it. Then the caller names the requests that this node should have, and the node fetches those that it lacks. When a
// node's lease ends, the caller asks the server. One script decides whether another node gets the call or the call is
// lost.
package rpc
