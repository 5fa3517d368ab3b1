// Package send is the layer between callers and connections. Calls of the same moment share round trips (Pipeline), a
// plain command is sent before a script (Ahead), a command is sent without a retry (Once), functions run at the same
// time (Abreast), and a caller learns that a reply answers a retry (Resent).
//
// A Pipeline serves one server. A call that is alone is sent at once. Otherwise a call is sent after the goroutines
// that can run have run: the reply of one round trip wakes many callers, and their next calls share a round trip. While
// enough round trips are under way, calls wait until one returns. If all of them take long, the next call starts
// another. No timer delays a call. A call that is alone costs a mutex and, if its context can end, a switch to another
// goroutine and back.
//
// Go and Reuse run functions in goroutines that stay for the next function. A new goroutine has a small stack, which
// grows in the client at every call: up to a third of what a caller spends. A goroutine that has made a call has the
// stack for the next one.
package send
