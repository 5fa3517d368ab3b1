// Package rpc calls typed methods of other processes over Redis.
//
// # The life of a call
//
//	caller                     server                               node
//	  │ rpc_call ───────────────▶ check node, record, PUBLISH ────────▶ handler
//	  │ ◀── sent, or no responder                                        │
//	  │ ◀──────── PUBLISH ────── accept once, store, ◀────── rpc_reply ──┘
//
// The caller chooses a node. The script checks that the node's lease is good, and that its channel has a subscriber at
// that instant. So "no node serves this" is an answer and not a time-out. The reply script accepts a reply only from
// the node and attempt that were asked, and only once. It stores and publishes the reply in one step.
//
// # Who repairs what
//
// The caller keeps track of its calls, so Redis holds one key for each and no index. After a cut of its own connection
// the caller reads the records of its pending calls. A node reports a cut of its connection: then the caller names the
// requests that this node should have, and the node fetches those that it lacks. When a node's lease ends, the caller
// has the server decide, in one script, whether another node gets the call or the call is lost.
package rpc
