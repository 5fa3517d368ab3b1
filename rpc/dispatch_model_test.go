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

	"github.com/luatomic/luatomic/internal/lab"
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
}

// Each call ends by what is sent, and none waits until its caller looks after it: with links that hold, its end is there
// soon although the callers look only after a quarter of an hour. This is so for each kind of call, while nodes refuse,
// leave and join, connections move, and calls share keys.
func TestNoCallWaitsToBeLookedAfter(t *testing.T) {
	f := &fleet{
		name: luatomictest.Namespace(t), once: rpc.NewMethod[int, int]("once"),
		twice: rpc.NewMethod[int, int]("twice").Idempotent(),
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i := range f.nodes {
		all.Go(func() { f.comeAndGo(ctx, t, i) })
	}
	all.Go(func() { f.moveConnection(ctx) })
	for range 2 {
		caller := lab.OpenBus(t, luatomictest.Client(t), f.name, &rpc.Options{Timeout: 20 * time.Second, Lease: time.Hour})
		require.NoError(t, caller.Ready(ctx))
		for range 24 {
			all.Go(func() {
				for ctx.Err() == nil {
					f.call(t, caller)
				}
			})
		}
	}
	all.Wait()
	t.Logf("%d calls, %d results", f.ended.Load(), f.results.Load())
	require.Positive(t, f.results.Load())
}

// comeAndGo runs node after node, each with another grace.
func (f *fleet) comeAndGo(ctx context.Context, t *testing.T, i int) {
	client := luatomictest.Client(t)
	opts := &rpc.Options{Concurrency: 4, Lease: time.Minute, Grace: time.Duration(i-1) * 20 * time.Millisecond}
	for ctx.Err() == nil {
		b, err := rpc.NewBus(client, f.name, opts)
		if err == nil {
			err = errors.Join(f.once.Serve(b, f.handle), f.twice.Serve(b, f.handle))
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

// call makes a call of any kind, and wants it to end before its time is over.
func (f *fleet) call(t *testing.T, caller *rpc.Bus) {
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
			f.end(t, "gather", err)
		}
		return
	}
	_, err := m.CallWith(t.Context(), caller, 1, o)
	f.end(t, fmt.Sprintf("%+v", o), err)
}

func (f *fleet) end(t *testing.T, call string, err error) {
	var missing *rpc.MissingError
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &missing) {
		t.Errorf("%s: %v", call, err)
	}
	f.ended.Add(1)
	if err == nil {
		f.results.Add(1)
	}
}
