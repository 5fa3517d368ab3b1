package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/testkit/drill/history"
	"github.com/luatomic/luatomic/lua"
)

// roleVar is the variable of the environment that makes a test program a process of a drill.
const roleVar = "LUATOMIC_DRILL_ROLE"

// lease is the length of every lease of a drill. It outlasts a machine that stalls for half a second.
const lease = time.Second

// role is what one process does.
type role struct {
	Role, Name, URL, History string
	Seed                     uint64

	ctx    context.Context // ends with SIGTERM, and with the process that started this one
	client *redis.Client
	log    *history.Log

	mu  sync.Mutex
	rnd *rand.Rand
}

// roles has what the processes of each name run until their context ends.
var roles = map[string]func(*role) error{
	"producer":  (*role).produce,
	"consumer":  (*role).consume,
	"taker":     (*role).take,
	"poller":    (*role).poll,
	"operator":  (*role).operate,
	"holder":    (*role).hold,
	"caller":    (*role).call,
	"node":      (*role).serve,
	"scheduler": (*role).schedule,
	"mover":     (*role).move,
}

// runRole runs the role that the environment describes, and returns the exit code.
func runRole(text string) int {
	r := &role{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		panic(err)
	}
	opts, err := redis.ParseURL(r.URL)
	if err != nil {
		panic(err)
	}
	if r.log, err = history.Open(r.History, r.Name); err != nil {
		panic(err)
	}
	r.client, r.rnd = redis.NewClient(opts), rand.New(rand.NewPCG(r.Seed, 0))
	shiftClock()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	r.ctx = ctx
	fmt.Println("ready")
	if err := roles[r.Role](r); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(os.Stderr, "drill: %s: %v\n", r.Name, err)
		return 1
	}
	return 0
}

// offsetKey has the offset of the server's clock in microseconds.
const offsetKey = "drill:offset"

// shiftClock lets every script see the clock with the offset of offsetKey: all processes see a step in the same moment,
// and so does a server that was restarted.
func shiftClock() {
	const shift = `local redis = (function(real) local function shifted(f) return function(c, ...) ` +
		`local got = f(c, ...) if string.lower(c) ~= 'time' then return got end ` +
		`local us = got[1] * 1000000 + got[2] + (real.call('GET', '` + offsetKey + `') or 0) ` +
		`return {string.format('%.0f', math.floor(us / 1000000)), string.format('%.0f', us % 1000000)} end end ` +
		`return setmetatable({call = shifted(real.call), pcall = shifted(real.pcall)}, {__index = real}) end)(redis) `
	mutant := send.RewriteScript // of luagen mutate
	send.RewriteScript = func(name, sha, source string, at func(int) string) string {
		if mutant != nil {
			source = mutant(name, sha, source, at)
		}
		return shift + source
	}
}

// draw is a random number below n.
func (r *role) draw(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rnd.IntN(n)
}

// sleep returns false when the process is to end.
func (r *role) sleep(d time.Duration) bool { return sleep(r.ctx, d) }

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// within is a context for one call. A call that has begun may end after the process was asked to.
func (r *role) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.ctx), d)
}

// endOf is how a call ended that returns nothing but an error.
func endOf(err error) string {
	switch {
	case err == nil:
		return history.OK
	case errors.Is(err, lua.ErrNotExecuted):
		return history.Not
	}
	return history.Unknown
}
