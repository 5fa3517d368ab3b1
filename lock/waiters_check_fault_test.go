package lock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// inFlight counts the calls of a script that are on their way at once, each for 2 ms at least.
type inFlight struct {
	sha string

	mu             sync.Mutex
	now, most, all int
}

func (f *inFlight) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *inFlight) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer f.begin(cmd)()
		return next(ctx, cmd)
	}
}

func (f *inFlight) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer f.begin(cmds...)()
		return next(ctx, cmds)
	}
}

func (f *inFlight) begin(cmds ...redis.Cmder) (end func()) {
	n := 0
	for _, cmd := range cmds {
		if lab.OfScript(cmd, f.sha) {
			n++
		}
	}
	if n == 0 {
		return func() {}
	}
	f.mu.Lock()
	f.now, f.all = f.now+n, f.all+n
	f.most = max(f.most, f.now)
	f.mu.Unlock()
	time.Sleep(2 * time.Millisecond)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.now -= n
	}
}

// reset begins to count anew where none is on its way.
func (f *inFlight) reset() (none bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.most, f.all = 0, 0
	return f.now == 0
}

func (f *inFlight) read() (most, all int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.most, f.all
}

// After a broken subscription each waiter makes an attempt, which looks through the queue: a few at a time, and each
// once, also where the queue is lost.
func TestWaitersOfABrokenSubscriptionCheckAFewAtATime(t *testing.T) {
	t.Parallel()
	for what, lost := range map[string]bool{"the queue is there": false, "the queue is lost": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx, server := t.Context(), luatomictest.StartServer(t)
			admin, client, counted := server.Client(), server.Client(),
				&inFlight{sha: lab.Digest(&lockscript.AcquireScript)}
			client.AddHook(counted)
			direct, l := lab.Locker(t, admin, &lock.Options{TTL: time.Minute}), lab.Locker(t, client, nil)
			held, err := direct.Try(ctx, "x")
			require.NoError(t, err)
			const n = 200
			got := make(chan lab.Acquired, n)
			for range n {
				go func() { got <- <-lab.AcquireLater(ctx, l, "x") }()
			}
			lab.WaitFor(t, direct, "x", n)
			luatomictest.Eventually(t, 20*time.Second, "all have their replies", counted.reset)
			if lost {
				require.NoError(t, admin.Del(ctx, "lockq:{x}").Err())
			}
			require.NoError(t, admin.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err())
			luatomictest.Eventually(t, 20*time.Second, "each makes an attempt", func() bool {
				_, all := counted.read()
				return all >= n
			})
			lab.WaitFor(t, direct, "x", n)
			most, all := counted.read()
			require.LessOrEqual(t, most, 20)
			require.Less(t, all, n+n/10)
			require.NoError(t, held.Release(ctx))
			for range n {
				next := lab.Soon(t, 20*time.Second, "the lock", got)
				require.NoError(t, next.Err)
				require.NoError(t, next.Lease.Release(ctx))
			}
		})
	}
}
