package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// fleet is three nodes that are often full and come and go, a connection that moves between them, and callers.
type fleet struct {
	name    string
	once    rpc.Method[int, int]
	twice   rpc.Method[int, int] // it may run twice
	nodes   [3]atomic.Pointer[rpc.Bus]
	keys    atomic.Int64
	ended   atomic.Int64
	results atomic.Int64
	errors  atomic.Int64 // of nodes: one that could not leave in order
}

// Each call ends by what is sent, and none waits until its caller looks after it: with links that hold, its end is
// there soon although the callers look only after a quarter of an hour. This is so for each kind of call, while nodes
// refuse, leave and join, connections move, and calls share keys.
func TestNoCallWaitsToBeLookedAfter(t *testing.T) {
	for range 3 {
		f := &fleet{
			name: luatomictest.Namespace(t), once: rpc.NewMethod[int, int]("once"),
			twice: rpc.NewMethod[int, int]("twice").Idempotent(),
		}
		waited := f.live(t, 3*time.Second)
		t.Logf("%d calls, %d results, %d errors of nodes", f.ended.Load(), f.results.Load(), f.errors.Load())
		if f.errors.Load() == 0 {
			require.Empty(t, waited)
			require.Positive(t, f.results.Load())
			return
		}
	}
	t.Fatal("this machine stood still for a second in each of three runs, and nodes could not leave in order")
}

// live returns the calls that did not end in time.
func (f *fleet) live(t *testing.T, d time.Duration) (waited []string) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var all sync.WaitGroup
	for i := range f.nodes {
		all.Go(func() { f.comeAndGo(ctx, t, i) })
	}
	all.Go(func() { f.moveConnection(ctx) })
	var mu sync.Mutex
	for range 2 {
		caller := lab.OpenBus(t, luatomictest.Client(t), f.name, &rpc.Options{Timeout: time.Minute, Lease: time.Hour})
		require.NoError(t, caller.Ready(t.Context()))
		for range 24 {
			all.Go(func() {
				for ctx.Err() == nil {
					if late := f.call(t, caller); late != "" {
						mu.Lock()
						waited = append(waited, late)
						mu.Unlock()
					}
				}
			})
		}
	}
	all.Wait()
	return waited
}

// comeAndGo runs node after node.
func (f *fleet) comeAndGo(ctx context.Context, t *testing.T, i int) {
	client := luatomictest.Client(t)
	opts := &rpc.Options{Concurrency: 4, Lease: time.Minute, OnError: func(error) { f.errors.Add(1) }}
	for ctx.Err() == nil {
		b, err := rpc.New(client, f.name, opts)
		if err == nil {
			err = errors.Join(f.once.Serve(b, f.handle, nil), f.twice.Serve(b, f.handle, nil))
		}
		if err != nil {
			t.Error(err)
			return
		}
		f.nodes[i].Store(b)
		run, stop := context.WithTimeout(ctx, time.Duration(100+rand.IntN(400))*time.Millisecond)
		_ = b.Run(run)
		stop()
	}
}

func (f *fleet) handle(ctx context.Context, n int) (int, error) {
	select {
	case <-time.After(time.Duration(rand.IntN(4)) * time.Millisecond):
		return n, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (f *fleet) moveConnection(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
		to, from := f.nodes[rand.IntN(3)].Load(), f.nodes[rand.IntN(3)].Load()
		if to == nil || from == nil {
			continue
		}
		short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		if to.Bind(short, "user") != nil {
			_ = to.Rebind(short, "user", from.Node())
		}
		stop()
	}
}

// call makes a call of any kind. It describes one that did not end in time.
func (f *fleet) call(t *testing.T, caller *rpc.Bus) (late string) {
	m, o := f.once, &rpc.CallOptions{}
	if rand.IntN(2) == 0 {
		m = f.twice
	}
	switch rand.IntN(6) {
	case 0:
		o.Key = strconv.FormatInt(f.keys.Add(1)/8, 10)
	case 1:
		o.Connection = "user"
	case 2:
		if n := f.nodes[rand.IntN(3)].Load(); n != nil {
			o.Node = n.Node()
		}
	case 3:
		o.Affinity = strconv.Itoa(rand.IntN(5))
	case 4:
		for _, err := range m.Gather(t.Context(), caller, 1) {
			late += f.end("gather", err)
		}
		return late
	}
	_, err := m.Call(t.Context(), caller, 1, o)
	return f.end(fmt.Sprintf("%+v", o), err)
}

func (f *fleet) end(call string, err error) (late string) {
	f.ended.Add(1)
	var missing *rpc.MissingError
	switch {
	case err == nil:
		f.results.Add(1)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &missing) && !errors.Is(err, rpc.ErrNoResponders):
		return call + ": " + err.Error()
	}
	return ""
}
