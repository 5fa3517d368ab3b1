package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/luatomic/luatomic/internal/testkit/drill/history"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/rpc"
)

const (
	callers  = 3 // of one process
	callTime = 3 * time.Second
)

// methods are those of the drill: a call of once and of keyed runs once at most, one of again once for each attempt.
var methods = map[string]rpc.Method[string, string]{
	"once":        rpc.NewMethod[string, string]("once"),
	"keyed":       rpc.NewMethod[string, string]("keyed"),
	history.Again: rpc.NewMethod[string, string](history.Again).Idempotent(),
}

func (r *role) bus() (*rpc.Bus, error) {
	return rpc.New(r.client, "drill", &rpc.Options{Node: r.Name, Lease: lease, Timeout: callTime, Concurrency: 16,
		Grace: lease / 2})
}

// serve is a node. Each execution is recorded before the handler does anything else.
func (r *role) serve() error {
	b, err := r.bus()
	if err != nil {
		return err
	}
	for _, m := range methods {
		err := m.Serve(b, func(ctx context.Context, id string) (string, error) {
			info, _ := rpc.CallFrom(ctx)
			r.log.Add(history.Record{Kind: history.Run, Of: history.RPC + id, N: int64(info.Attempt)})
			sleep(ctx, time.Duration(r.draw(8))*time.Millisecond)
			return id, ctx.Err()
		}, nil)
		if err != nil {
			return err
		}
	}
	return b.Run(r.ctx)
}

// call makes calls of all methods, one with a key twice.
func (r *role) call() error {
	b, err := r.bus()
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(r.ctx)) // until the last call has ended
	var link, all sync.WaitGroup
	link.Go(func() { _ = b.Run(running) })
	for caller := range callers {
		all.Go(func() {
			for n := 0; r.ctx.Err() == nil; n++ {
				r.callOne(b, []string{"once", "keyed", history.Again}[n%3], fmt.Sprintf("%s-%d-%d", r.Name, caller, n))
			}
		})
	}
	all.Wait()
	stop()
	link.Wait()
	return nil
}

func (r *role) callOne(b *rpc.Bus, method, id string) {
	opts, times := &rpc.CallOptions{}, 1
	if method == "keyed" {
		opts.Key, times = id, 2
	}
	of, end := history.RPC+id, history.Not
	r.log.Add(history.Record{Kind: history.Call, Of: of, Text: method})
	for range times {
		ctx, cancel := r.within(callTime)
		out, err := methods[method].Call(ctx, b, id, opts)
		cancel()
		if one := endOfCall(out, id, err); one != history.Not || end == history.Not {
			end = one // what is known of the first call stays
		}
	}
	r.log.Add(history.Record{Kind: history.End, Of: of, Text: end})
	if end != history.OK {
		r.sleep(20 * time.Millisecond)
	}
}

// endOfCall sorts the end of a call as docs/rpc.md does.
func endOfCall(out, want string, err error) string {
	var remote *rpc.RemoteError
	switch {
	case err == nil && out != want:
		return fmt.Sprintf("the result %q, not %q", out, want)
	case errors.Is(err, rpc.ErrNoResponders), errors.Is(err, rpc.ErrOverloaded):
		return history.Not
	case err == nil, errors.Is(err, lua.ErrNotExecuted):
		return endOf(err)
	case errors.Is(err, rpc.ErrNodeLost), errors.Is(err, context.DeadlineExceeded), errors.Is(err,
		lua.ErrOutcomeUnknown),
		errors.As(err, &remote) && remote.Code == rpc.CodeDeadline:
		return history.Unknown
	}
	return err.Error()
}
