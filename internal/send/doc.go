// Package send is what stands between a caller and a connection: calls of the same moment share round trips (Line), a
// plain command travels ahead of a script (Ahead), a command is sent one time (Once), questions are asked at the same
// time (Abreast), and a caller learns that a reply answers a retry (Resent).
//
// A Line stands before one server. A call without company is sent at once. With company it is sent once the other
// goroutines that can run have had their turn: the reply of one round trip wakes many callers, and their next calls go
// out together. While enough round trips are under way, calls wait for one of them to return, or for the next call
// where all of them take long. No timer delays a call. A call without company costs a mutex, and where its context can
// end, the way to another goroutine and back.
//
// Go and Reuse run functions in goroutines that stay for the next function. A new goroutine has a small stack, which
// grows in the client at every call: up to a third of what a caller spends. A goroutine that has made a call has the
// stack for the next one.
package send
