package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/luatomic/luatomic/internal/testkit/drill/history"
	"github.com/luatomic/luatomic/lock"
)

const (
	locks   = 4
	holders = 4 // of one process
	// afterlife outlasts every step of the clock: a fence is greater than the last one for as long.
	afterlife = 20 * time.Second
)

// hold acquires locks and writes to what they protect.
func (r *role) hold() error {
	l := lock.New(r.client, &lock.Options{TTL: lease, Claim: lease / 2, Afterlife: afterlife, Note: r.Name})
	defer l.Close()
	var all sync.WaitGroup
	for range holders {
		all.Go(func() {
			for r.ctx.Err() == nil {
				if !r.holdOne(l) {
					r.sleep(time.Duration(10+r.draw(20)) * time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	return nil
}

// holdOne reports whether it had the lock.
func (r *role) holdOne(l *lock.Locker) bool {
	name := fmt.Sprint("drill", r.draw(locks))
	ctx, cancel := r.within(time.Duration(100+r.draw(2000)) * time.Millisecond)
	defer cancel()
	take := l.Acquire
	if r.draw(3) == 0 {
		take = l.Try
	}
	s := r.log.Span(history.Lock + name)
	s.Add(history.Acquire, 0, func() bool { return false })
	got, err := take(ctx, name)
	if err != nil {
		return false
	}
	lasts := func() bool { return got.Err() == nil }
	s.Add(history.Grant, got.Fence(), lasts)
	kept := r.draw(10) > 0
	if kept {
		got.Keep(r.ctx)
	}
	for range r.writes() {
		r.sleep(time.Duration(r.draw(4)) * time.Millisecond)
		s.Add(history.Write, got.Fence(), lasts)
	}
	if !kept && r.draw(2) == 0 { // it works on past its lease, and writes then
		r.sleep(lease + time.Duration(r.draw(int(lease/2))))
		s.Add(history.Write, got.Fence(), lasts)
	}
	if r.draw(50) == 0 {
		return true // never released
	}
	s.Add(history.Release, 0, func() bool { return false })
	release, done := r.within(2 * time.Second)
	defer done()
	_ = got.Release(release)
	return true
}

// writes is how often a holder writes: one in twelve for a part of a lease.
func (r *role) writes() int {
	if r.draw(12) == 0 {
		return int(lease / 16 / time.Millisecond)
	}
	return 1 + r.draw(4)
}
