//go:build interop

package redisinaction_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/luatomictest"
)

// The steps of docs/redisinaction.md that move one queue from Python to Go, in order, each with its way back. No item
// is lost and none runs twice: nothing is killed while it works.
func TestInteropMovingOneQueueOver(t *testing.T) {
	ctx, interpreter, server := t.Context(), findPython(t), luatomictest.StartServer(t)
	r := server.Client()
	c := redisinaction.New(r, nil)
	p := startPython(t, interpreter, server)
	var sent []string
	fromPython := func(n int) {
		t.Helper()
		var calls []any
		for range n {
			calls = append(calls, []any{"send", []any{"ann"}, 0.02})
		}
		var ids []string
		p.Ask([]any{"execute_later", "mail", calls}, &ids)
		sent = append(sent, ids...)
	}
	fromGo := func(n int) {
		t.Helper()
		for range n {
			id, err := c.ExecuteLater(ctx, "mail", "send", []any{"ann"}, 20*time.Millisecond)
			require.NoError(t, err)
			sent = append(sent, id)
		}
	}
	ran := 0
	python := func(n int) { // takes n items
		t.Helper()
		var called []json.RawMessage
		p.Ask([]any{"work", []string{"mail"}, n, 20}, &called)
		require.Len(t, called, n)
		ran += n
	}
	var mu sync.Mutex
	inGo := map[string]int{}
	serve := func() (stop func()) {
		w, err := c.NewWorker("host-1", []string{"mail"}, nil)
		require.NoError(t, err)
		return during(ctx, func(ctx context.Context) {
			_ = w.Run(ctx, func(_ context.Context, i redisinaction.Item) error {
				mu.Lock()
				defer mu.Unlock()
				inGo[i.ID]++
				return nil
			})
		})
	}
	drained := func() {
		t.Helper()
		luatomictest.Eventually(t, time.Minute, "all have run", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return ran+len(inGo) == len(sent)
		})
	}
	poll := func() (stop func()) {
		return during(ctx, func(ctx context.Context) { _ = c.NewPoller(nil).Run(ctx) })
	}

	// 1. Go executes later; Python polls and works.
	var nothing any
	p.Ask([]any{"poll"}, &nothing)
	fromPython(3)
	fromGo(3)
	python(6)

	// 2. A Go poller beside Python's; back: it stops.
	stopPolling := poll()
	fromPython(3)
	fromGo(3)
	python(6)
	stopPolling()
	fromGo(2)
	python(2)

	// 3. A Go worker beside Python's; back: it stops, and what comes then is Python's.
	stopPolling, stopServing := poll(), serve()
	fromPython(5)
	fromGo(5)
	drained()
	stopServing()
	fromGo(2)
	python(2)

	// 4. Python's workers and pollers end: the queue is Go's alone; back: Python polls and takes again.
	stopServing = serve()
	p.Kill()
	p = startPython(t, interpreter, server) // neither polls nor works
	fromPython(5)
	fromGo(5)
	drained()
	stopServing()
	stopPolling()
	p.Ask([]any{"poll"}, &nothing)
	fromPython(2)
	python(2)
	drained()
	for id, times := range inGo {
		require.Equal(t, 1, times, id)
		require.Contains(t, sent, id)
	}
	require.Empty(t, r.Exists(ctx, "malformed:", "working:host-1", "delayed:", "queue:mail").Val())
}

// during runs f until stop is called.
func during(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}
