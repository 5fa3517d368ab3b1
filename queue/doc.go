// Package queue has queues of ready and scheduled jobs on Redis. Each step is one script, so no crash loses a job
// between two steps.
//
// # Use
//
//	type Mail struct{ To string }
//	mails := queue.NewKind[Mail]("mail")
//
//	outbox, err := queue.New(client, "outbox", nil)
//	pushed, err := mails.Push(ctx, outbox, Mail{To: "ann"}) // one script: all of it or nothing
//
//	var mux queue.Mux
//	mails.Serve(&mux, func(ctx context.Context, mail Mail, d *queue.Delivery) error {
//		return send(ctx, mail) // nil acks the job, an error schedules a retry
//	})
//	done, err := outbox.Consume(ctx, nil, mux.Handle) // until ctx ends
//
// # The life of a job
//
// q is the name of the queue. With a tag the keys begin with {tag}{q}:
//
//	Push ──due later──▶ {q}:s  zset id → due ms ──Promote or Take, when due──┐
//	  └────────────────▶ {q}:r  list of enqueued_at_ms:id ◀──────────────────┘
//	                       │ Take                  ▲            ▲
//	                       ▼                       │ Nack       │ Reclaim, when the lease has ended
//	                     {q}:l  zset id → lease end ─────────────┘
//	                       │ Ack          │ Bury, or too many failures
//	                       ▼              ▼
//	                    (deleted)       {q}:d  zset id → time of death
//
// Each arrow is one script, so a job is in exactly one of r, s, l and d at any moment.
//
// # Clocks
//
// Every time is by the server's clock: when a job is due, was enqueued or died (milliseconds), and when a lease ends
// (microseconds). The clock of the process measures only durations: its own sleeps, and how much of a lease is left.
//
// # Delays
//
// A scheduled job is in {q}:s, scored by its due time, until the server's clock has reached that time. Then a script
// moves it to {q}:r. That is the script of Promote, which a Poller calls, or the script of Take, whichever comes first.
// So a queue that is consumed needs no Poller. A Poller is for queues whose consumers are busy for a long time or do
// not always run.
//
// # Promise
//
// A batch is pushed as a whole or not at all. A job is delivered at least once, never to two workers under one lease,
// and never before its due time. A delivery is fenced: a worker whose lease has ended cannot ack, extend or return the
// job of the next worker. Payloads are opaque bytes. docs/guarantees.md names the test of each promise.
//
// # Errors
//
// Arguments are checked before anything is sent: lua.ErrBadName, lua.ErrOutOfRange, lua.ErrTooLarge. A call that failed
// on the way says what is known: lua.ErrNotExecuted (nothing changed), lua.ErrOutcomeUnknown (no reply came: the script
// took effect once or not at all) or lua.ErrExecutedInPart (the contract of the script says what is left).
// lua.ErrWrongType names a key that holds another type; then nothing has changed. The docs of the methods name only the
// errors that they add to these.
//
// # Keys
//
// The methods name the keys that they touch by their suffix:
//
//	r   list    ready jobs            b   hash    bodies, from the push to the ack
//	s   zset    scheduled jobs        n   hash    failures and the last reason
//	l   zset    leases                u   hash    unique names and their holders
//	d   zset    dead jobs             ux  zset    ends of the unique names
//	c   hash    settings              w   zset    channels of consumers that wait; expires
//	o   hash    options of jobs       f   zset    jobs that were finished just now; expires
//	                                  i:* string  receipts of calls, for their repeats; expire
//
// n in a cost is the number of jobs in the queue.
package queue
