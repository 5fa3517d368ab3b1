package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
)

const payload = 300 // bytes of a job

// rows are all rows of a run, in the order of the page. Peers that cannot run are noted in r.
func rows(b *bench, r *result) []row {
	var all []row
	add := func(rows ...row) { all = append(all, rows...) }
	add(pingRow())
	add(pushRows(b, r)...)
	add(workRows()...)
	add(stallRow())
	add(lockRows()...)
	add(sharingRows()...)
	add(handOverRows()...)
	add(waitRows()...)
	add(callRows()...)
	add(memoryRows()...)
	add(generatedRow())
	return all
}

func pingRow() row {
	return row{"ping", "one PING, one caller", "p50_us",
		[]entrant{{name: "PING", kind: raw, run: func(b *bench) (metrics, error) {
			c := b.client(1)
			return b.alone(1, func(ctx context.Context) error { return c.Ping(ctx).Err() })
		}}}}
}

// queue is a queue of the entrant's own.
func (b *bench) queue(c redis.UniversalClient) (*luatomic.Queue, error) {
	return luatomic.NewQueue(c, b.space, nil)
}

// key is a key of that queue, such as "s" for the scheduled jobs.
func (b *bench) key(part string) string { return fmt.Sprintf("{%s}:%s", b.space, part) }
