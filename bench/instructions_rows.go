package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lua"
)

const (
	warmCalls    = 5
	countedCalls = 50    // the server collects garbage of Lua after every 50 scripts
	batches      = 2     // of so many calls; the lesser is without what the clock added to one of them
	batched      = 36    // jobs in a take of ten busy handlers, see docs/design.md
	times        = " x " // before how many jobs or callers a call is of
)

// counted is a row of the table. open makes what is counted, on an empty server.
type counted struct {
	name   string
	absent string // why it cannot be counted here
	calls  int    // in one batch; 0: batches of countedCalls, after warmCalls that do not count
	open   func(s *scene) (operation, error)
}

// operation is one call on data of its own for each tag.
type operation struct {
	prepare func(tag string) error // not counted; nil: nothing
	run     func(tag string) error
}

// scene is what a row uses while it is counted.
type scene struct {
	ctx     context.Context
	counter *counter
	c       *redis.Client
	closers []func()
}

// client has more connections than one, for programs that need them.
func (s *scene) client(connections int) *redis.Client {
	c := s.counter.client(connections)
	s.closers = append(s.closers, func() { _ = c.Close() })
	return c
}

// row counts the instructions of one call.
func (c *counter) row(r counted) (n float64, err error) {
	s := &scene{ctx: c.ctx, counter: c, c: c.client(1)}
	defer func() {
		for _, f := range s.closers {
			f()
		}
		err = errors.Join(err, s.c.FlushAll(c.ctx).Err(), s.c.Close())
	}()
	// An interpreter of its own, so that a row does not depend on those before.
	if err := s.c.ScriptFlush(c.ctx).Err(); err != nil {
		return 0, err
	}
	op, err := r.open(s)
	if err != nil {
		return 0, err
	}
	warm, calls, rounds := warmCalls, countedCalls, batches
	if r.calls > 0 {
		warm, calls, rounds = 0, r.calls, 1
	}
	tags := make([]string, warm+rounds*calls)
	for i := range tags {
		tags[i] = fmt.Sprintf("t%03d", i)
		if op.prepare != nil {
			if err := op.prepare(tags[i]); err != nil {
				return 0, err
			}
		}
	}
	if err := each(tags[:warm], op.run); err != nil {
		return 0, err
	}
	var counts []float64
	for batch := range slices.Chunk(tags[warm:], calls) {
		// The garbage of before is none of this batch.
		if err := s.c.Eval(c.ctx, "return collectgarbage('collect')", nil).Err(); err != nil {
			return 0, err
		}
		n, err := c.count(func() error { return each(batch, op.run) })
		if err != nil {
			return 0, err
		}
		counts = append(counts, n/float64(calls))
	}
	return slices.Min(counts), nil
}

func each(tags []string, run func(string) error) error {
	for _, tag := range tags {
		if err := run(tag); err != nil {
			return err
		}
	}
	return nil
}

// cases are what the calls of a script are about, in the order of their list, where it has more than one.
var cases = map[string][]string{
	"queue_push":       {"one job", "three, a name, a limit"},
	"queue_peek":       {"ready", "scheduled", "leased", "dead"},
	"lock_try":         {"free", "released before", "held"},
	"lock_acquire":     {"free", "lapsed, two dead waiters", "held, to wait", "lapsed, to wait behind two dead"},
	"lock_release":     {"nobody waits", "two dead waiters"},
	"lock_force":       {"free it", "hand it over"},
	"lock_sem_acquire": {"free", "lapsed, two dead waiters", "full, to wait", "lapsed, to wait behind two dead"},
	"lock_sem_release": {"nobody waits", "two dead waiters", "not held"},
	"rpc_decide":       {"a live node", "again, away from a dead node"},
	"rpc_bind":         {"from another node", "end it"},
	"limit_allow":      {"new", "in use"},
	"limit_allow_all":  {"one limit is new", "both are in use"},
	"limit_reserve":    {"new", "one limit is in debt"},
	"limit_settle":     {"a reservation", "without a receipt"},
	"limit_level":      {"in debt", "whole"},
}

// countedRows are all rows. Those of the scripts are what the list of valid calls has at run time.
func countedRows() []counted {
	var all []counted
	seen := make(map[string]int)
	for _, call := range scriptcase.ScriptCalls() {
		script := call.Script.Name
		name := "script: " + script
		if cases := cases[script]; seen[script] < len(cases) {
			name += ", " + cases[seen[script]]
		}
		seen[script]++
		all = append(all, counted{name: name, open: oneCall(call)})
		if call.Script.Merge != nil {
			all = append(all, counted{name: fmt.Sprint(name, times, batched), open: manyRows(call)})
		}
	}
	return append(append(all, countedOurs()...), countedPeers()...)
}

// oneCall is a call of a script as the tests of all scripts make it. Node n of the tag has a subscriber.
func oneCall(call scriptcase.ScriptCall) func(*scene) (operation, error) {
	return func(s *scene) (operation, error) {
		h := s.hearer()
		alone := lua.Direct(s.c)
		return operation{
			prepare: func(tag string) error { return errors.Join(call.Prepare(s.ctx, s.c, tag), h.hear(tag+"n")) },
			run: func(tag string) error {
				h.read()
				_, err := call.Run(s.ctx, alone, tag)
				return err
			}}, nil
	}
}

// manyRows is one call of a script for many callers, each with data of its own.
func manyRows(call scriptcase.ScriptCall) func(*scene) (operation, error) {
	return func(s *scene) (operation, error) {
		h := s.hearer()
		sha, err := s.c.ScriptLoad(s.ctx, *call.Script.Source).Result()
		if err != nil {
			return operation{}, err
		}
		commands := make(map[string][]any)
		return operation{
			prepare: func(tag string) error {
				var keys, args []string
				for i := range batched {
					row := fmt.Sprint(tag, "-", i)
					words, err := scriptcase.Words(s.ctx, call, row)
					if err := errors.Join(err, call.Prepare(s.ctx, s.c, row), h.hear(row+"n")); err != nil {
						return err
					}
					keys, args = append(keys, words.Keys...), append(args, words.Args...)
				}
				command := []any{"EVALSHA", sha, len(keys)}
				for _, word := range append(keys, args...) {
					command = append(command, word)
				}
				commands[tag] = command
				return nil
			},
			run: func(tag string) error {
				h.read()
				return s.c.Do(s.ctx, commands[tag]...).Err()
			},
		}, nil
	}
}

// hearer is a connection that subscribes to channels.
type hearer struct {
	ctx   context.Context
	ps    *redis.PubSub
	drain sync.Once
}

func (s *scene) hearer() *hearer {
	ps := s.client(1).Subscribe(s.ctx)
	s.closers = append([]func(){func() { _ = ps.Close() }}, s.closers...)
	return &hearer{ctx: s.ctx, ps: ps}
}

// hear returns when the server knows the subscription.
func (h *hearer) hear(channel string) error {
	if err := h.ps.Subscribe(h.ctx, channel); err != nil {
		return err
	}
	_, err := h.ps.ReceiveTimeout(h.ctx, time.Minute)
	return err
}

// read takes all messages from now on: what nobody reads would fill the server's buffer.
func (h *hearer) read() {
	h.drain.Do(func() {
		go func() {
			for {
				if _, err := h.ps.ReceiveMessage(h.ctx); err != nil {
					return
				}
			}
		}()
	})
}
