package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
)

const payload = 300 // bytes of a job

// rows are all rows of a run, in the order of the page. Peers that cannot run are noted in r.
func rows(b *bench, r *result) []contest {
	var all []contest
	add := func(rows ...row) {
		for _, r := range rows {
			all = append(all, contest{r, notAlternated(r.name), slotOf(r.name)})
		}
	}
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

// notAlternated says why the entrants of a row do not alternate in slots, and "" for those that do.
func notAlternated(row string) string {
	family, _, _ := strings.Cut(row, "/")
	return map[string]string{
		"late":     "asynq looks for due tasks every 5 s",
		"stall":    "a million jobs are stored for one figure",
		"takeover": "each sample kills a process and waits for a lease of 1 s",
		"idle":     "the server counts the commands of all who are connected",
		"memory":   "what is stored depends on no clock",
	}[family]
}

// slotOf is the length of a slot in rows that have few operations in the usual one.
func slotOf(row string) time.Duration {
	if strings.HasPrefix(row, "handover/") || row == "call/body=900000" {
		return 200 * time.Millisecond
	}
	return 0
}

func pingRow() row {
	return row{"ping", "one PING, one caller", "p50_us",
		[]entrant{{name: "PING", kind: raw, open: func(b *bench) (work, error) {
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
