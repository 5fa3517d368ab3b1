// Package queue is a queue of jobs on Redis, ready and scheduled, in which no step has a gap.
//
// # The life of a job
//
// q is the queue's name; with a tag the keys begin with {tag}{q}:
//
//	Push ──due later──▶ {q}:s  zset id → due ms ──Promote or Take, when due──┐
//	  └────────────────▶ {q}:r  list of enqueued_at_ms:id ◀──────────────────┘
//	                       │ Take                  ▲            ▲
//	                       ▼                       │ Nack       │ Reclaim, lease over
//	                     {q}:l  zset id → lease end ─────────────┘
//	                       │ Ack          │ Bury, or failed too often
//	                       ▼              ▼
//	                    (deleted)       {q}:d  zset id → time of death
//
// The body is in {q}:b, a hash, from the push to the ack; {q}:n counts failed deliveries. A job is in exactly one of r, s,
// l and d at any moment, because each arrow is one script.
//
// # Delays
//
// A scheduled job waits in {q}:s, scored by its due time in ms, until the server's clock has reached that time. Then one
// script moves it to {q}:r, with what else is due: Promote, which a Poller runs, or Take, whichever comes first. So a queue
// that is consumed needs no poller. A Poller serves queues whose consumers are busy for long, or run elsewhere.
//
// # Promise
//
// A batch is pushed whole or not at all. A job is delivered at least once, never to two workers under one lease, and
// never before its time. A delivery is fenced: a worker whose lease is over cannot ack, extend or give back the job of the
// next one. Payloads are opaque bytes. docs/guarantees.md names the test of each promise.
package queue
