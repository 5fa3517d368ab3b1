package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/luatomic/luatomic/queue"
)

// stallRow moves a million jobs that are due at the same time while another connection sends PING every millisecond.
func stallRow() row {
	const due = 1_000_000
	return row{"stall", fmt.Sprintf("PING while %d due jobs are moved, 1000 a call (a tenth in a quick run)", due),
		"p99_us", []entrant{
			{name: "luatomic", kind: ours, open: whole(stalling(due, promoteOurs))},
			{name: "script", kind: raw, note: "moves a thousand in one step", open: whole(stalling(due, promoteRaw))},
			{name: "nothing runs", kind: raw, note: "PING alone", open: whole(func(b *bench) (metrics, error) {
				return b.pingDuring(func() error {
					time.Sleep(b.span())
					return nil
				})
			})},
		}}
}

func stalling(due int, open opener) func(*bench) (metrics, error) {
	return func(b *bench) (metrics, error) {
		c := b.client(1)
		q, err := b.queue(c)
		if err == nil {
			err = fill(b.ctx, q, b.size(due), time.Hour)
		}
		if err == nil {
			err = makeDue(b, c, b.key("s"))
		}
		if err != nil {
			return nil, err
		}
		move := open(b, c, q)
		return b.pingDuring(func() error {
			for moved := 0; moved < b.size(due); {
				n, err := move()
				if err != nil || n == 0 || n > queue.MaxBatch {
					return errors.Join(err, fmt.Errorf("%d of %d jobs moved", moved, b.size(due)))
				}
				moved += n
			}
			return nil
		})
	}
}

// pingDuring sends PING every millisecond while f runs.
func (b *bench) pingDuring(f func() error) (metrics, error) {
	probe := b.client(1)
	ctx, cancel := context.WithCancel(b.ctx)
	result := make(chan []time.Duration)
	go func() {
		var all []time.Duration
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			start := time.Now()
			if probe.Ping(ctx).Err() == nil {
				all = append(all, time.Since(start))
			}
		}
		result <- all
	}()
	err := f()
	cancel()
	all := <-result
	if err != nil || len(all) == 0 {
		return nil, errors.Join(err, errors.New("no PING was answered"))
	}
	m := latencies(all)
	m["max_us"] = float64(slices.Max(all).Microseconds())
	return m, nil
}
