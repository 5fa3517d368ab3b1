package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// onTime is how much later than a timer of this process an outcome may come that needs no network: milliseconds where
// the machine has time for it, and less than half of what a fault takes.
const onTime = 2 * time.Second

// The server hangs. Each call ends with its context, with go-redis' defaults, under which a read takes five seconds:
// not later than goroutines that wait for nothing but these contexts. A busy machine may hold up one round of calls; a
// call that waits for its read is five seconds late in each.
func TestDeadlineHoldsWhileTheServerHangs(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	ctx := t.Context()
	lab.Serving(t, lab.Echo, server.Client(), "b", &rpc.Options{Lease: time.Minute}, lab.Upper)
	late := make([]time.Duration, 0, 5)
	for range cap(late) {
		caller := lab.OpenBus(t, server.Client(), "b", &rpc.Options{Lease: time.Minute, Timeout: time.Minute})
		_, err := lab.Echo.Call(ctx, caller, "x", nil)
		require.NoError(t, err)
		server.Pause()
		late = append(late, lateness(ctx, t, caller))
		server.Resume()
		if late[len(late)-1] < onTime {
			return
		}
	}
	t.Fatalf("the calls were late in each round: %v", late)
}

// lateness makes calls that no server answers, and returns how much later the last of them ends than the last control.
func lateness(ctx context.Context, t *testing.T, caller *rpc.Bus) time.Duration {
	var mu sync.Mutex
	var call, control time.Time
	note := func(at *time.Time) {
		mu.Lock()
		defer mu.Unlock()
		*at = time.Now()
	}
	var wg sync.WaitGroup
	for range 8 {
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		wg.Go(func() {
			<-short.Done()
			note(&control)
		})
		wg.Go(func() {
			_, err := lab.Echo.Call(short, caller, "x", nil)
			note(&call)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the call ended with %v", err)
			}
		})
	}
	wg.Wait()
	return call.Sub(control)
}

// lateAnswer delays what the server answers to a call, at most until the test ends.
type lateAnswer struct {
	scriptHook
	d    time.Duration
	over <-chan struct{}
}

type scriptHook struct{}

func (scriptHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (scriptHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h lateAnswer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if len(cmd.Args()) > 1 && fmt.Sprint(cmd.Args()[1]) == lab.Digest(&rpcscript.CallScript) {
			select {
			case <-time.After(h.d):
			case <-h.over:
			}
		}
		return err
	}
}

// A reply that has come is given, although the answer to the script that sent the call has not: not later than an
// ordinary call that is made beside it. A call that waits for the answer takes 10 s, in each of three.
func TestReplyThatHasComeIsGiven(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), luatomictest.Namespace(t)
	lab.Serving(t, lab.Echo, luatomictest.Client(t), name, nil, lab.Upper)
	plain := lab.OpenBus(t, luatomictest.Client(t), name, &rpc.Options{Timeout: time.Minute})
	c := luatomictest.Client(t)
	c.AddHook(lateAnswer{d: 10 * time.Second, over: ctx.Done()})
	caller := lab.OpenBus(t, c, name, &rpc.Options{Timeout: time.Minute})
	took := func(b *rpc.Bus) time.Duration {
		start := time.Now()
		_, err := lab.Echo.Call(ctx, b, "x", nil)
		require.NoError(t, err)
		return time.Since(start)
	}
	took(plain) // it knows the node
	late := make([]time.Duration, 0, 3)
	for range cap(late) { // no more round trips of a client are under way at once
		late = append(late, took(caller)-took(plain))
		if late[len(late)-1] < onTime {
			return
		}
	}
	t.Fatalf("the replies were late each time: %v", late)
}
