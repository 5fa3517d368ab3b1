// Package redisinaction lets Go take either side of a system that is built from the delayed tasks and the locks of
// the book "Redis in Action" (chapter 6), on the same keys, byte for byte.
//
//	delayed:        zset    items, scored by due time in float seconds
//	queue:<q>       list    items, RPUSH at the end, taken from the head
//	lock:<name>     string  uuid of the holder; no time to live unless asked for
//
// Besides the keys of the book, this package has three keys of its own, which the programs of the book do not read:
//
//	malformed:      list    items that no worker can parse, with their bytes
//	working:<name>  list    the one item that the worker of that name runs
//	sent:<id>       string  reply of one ExecuteLater, kept for a retry; a minute
//
// An item is Python's json.dumps of [id, queue, name, args]: id a uuid, args a list, a comma and a space between
// elements, ASCII alone. Items of two elements, [name, args], as the book's plain workers use them, are read too.
// Where Python and Go encode a value differently, ExecuteLater writes Python's bytes.
//
// # The life of an item
//
// ExecuteLater adds it to delayed:, or to its queue when there is no delay. PollQueue, or a Poller, moves it to its
// queue when the server's clock has reached its score. A Worker moves it to a list of its own, runs it and removes
// it. Each of these steps is one script, so that an item is always in exactly one place. The book's poller removes an
// item and then adds it: while such a poller runs, its two steps stay two.
//
// A lock is acquired and released as in the book. AcquireLock and ReleaseLock are one script each; a retry after a
// lost reply has no second effect.
//
// The names of the keys have no hash tags, so a Redis Cluster refuses the scripts of
// several keys (CROSSSLOT), unless Options.Prefix has one.
package redisinaction
