// Package rpc calls typed methods of other processes over Redis.
//
// # The life of a call
//
//	caller                     server                               node
//	  │ rpc_call ───────────────▶ check node, record, PUBLISH ────────▶ handler
//	  │ ◀── sent, or no responder                                        │
//	  │ ◀──────── PUBLISH ────── accept once, store, ◀────── rpc_reply ──┘
//
// The caller chooses a node, and the script checks that its lease is good and that its channel has a subscriber at that
// instant. So "no node serves this" is an answer and not a time-out. The reply script accepts a reply only from the
// node and attempt that were asked, and only once. It stores the reply and publishes it in the same script.
//
// # Who repairs what
//
// The caller keeps track of its calls, so Redis holds one key for each and no index. When the caller's connection was
// cut, it reads the records of the calls that are pending. When a node reports that its connection was cut, the caller
// names to it the requests that it should have, and the node fetches those that it does not have. When a node's lease
// ends, the caller has the server decide, in one script, whether another node gets the call or the call is lost.
package rpc
