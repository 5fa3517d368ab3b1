package redisinaction

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/compat/redisinaction/internal/script"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/decline"
)

// ErrDeclined matches the error of Decline, which is no failure.
var ErrDeclined = decline.Err

// A Handler returns Decline when it has not begun an item because its process cannot run it, but another one may: a
// function that this program does not know. The book's worker drops such an item.
//
// Run moves the item to the end of its queue, unchanged, where a waiting worker of Python gets it at once. When it
// comes again before the time for which this worker has declined it, 1 s at least and a minute at most, Run pauses for
// up to 1 s. OnError gets the first, the tenth, the hundredth such item. An item that this worker has declined for
// WorkerOptions.Declined goes to malformed:.
func Decline(err error) error { return decline.New(err) }

const (
	maxDeclined = 1000      // items whose declines a worker remembers
	rowEnds     = time.Hour // without a decline
)

// declines are the items that a worker has declined.
type declines struct {
	rows   map[[sha256.Size]byte]row
	counts decline.Counts
}

// row is when an item was declined first and last.
type row struct{ first, last time.Time }

// add notes a decline. It returns the age of the row, and how long to pause.
func (d *declines) add(raw []byte, now time.Time) (age, pause time.Duration) {
	name := sha256.Sum256(raw)
	r, known := d.rows[name]
	if known && now.Sub(r.last) > rowEnds {
		known = false
	}
	if known {
		age = now.Sub(r.first)
		pause = min(max(age, time.Second), time.Minute) - now.Sub(r.last)
	} else {
		r.first = now
	}
	if d.rows == nil || len(d.rows) >= maxDeclined {
		d.rows = make(map[[sha256.Size]byte]row)
	}
	r.last = now
	d.rows[name] = r
	return age, min(max(pause, 0), time.Second)
}

// giveBack moves an item that its handler has not begun to the end of its queue, or to malformed: after its time.
func (w *Worker) giveBack(ctx context.Context, item Item, cause error) error {
	age, pause := w.declines.add(item.Raw, time.Now())
	queue := item.Queue
	if queue == "" {
		queue = w.names[0]
	}
	n, report := w.declines.counts.Add(queue + "\n" + item.Name + "\n" + cause.Error())
	to, then := w.client.queue(queue), "another worker of its queue may run it then"
	if age >= w.opts.Declined {
		to, then, report = w.client.malformed(), "it goes to malformed:, as nobody has run it", true
	}
	if report {
		w.report(item, fmt.Errorf("%w; the item of queue %q is unchanged, and %s (%d so far)", cause, queue, then, n))
	}
	retry := newBackoff()
	for {
		_, err := script.Quarantine(ctx, w.client.redis,
			script.QuarantineParams{Working: w.working(), Malformed: to, Body: item.Raw})
		if err == nil {
			clock.Sleep(ctx, pause)
			return nil
		}
		if ctx.Err() != nil {
			return err // it stays for the next worker of that name
		}
		w.report(item, w.wrap("decline", err))
		clock.Sleep(ctx, retry.Next())
	}
}
