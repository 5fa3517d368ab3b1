package lock_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// laggard holds back the answer to one call of a script, as a goroutine that gets no
// time would.
type laggard struct {
	sha   string
	armed atomic.Bool
	let   chan struct{}
}

func (*laggard) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *laggard) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		held := strings.Contains(cmd.String(), g.sha) && g.armed.CompareAndSwap(true, false)
		err := next(ctx, cmd)
		if held {
			<-g.let
		}
		return err
	}
}

func (*laggard) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// One that waits is told when to look, and an older answer to another of its process
// comes after that: the look is not put off.
func TestOlderAnswerDoesNotPutOffALook(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	late := &laggard{sha: gen.SemAcquireSHA, let: make(chan struct{})}
	c.AddHook(late)
	queued := make(chan struct{}, 2)
	s, l, name, _ := newSemaphore(t, 2, &lock.Options{TTL: time.Minute})
	mine := lab.Locker(t, c, &lock.Options{TTL: time.Minute, Observe: func(e lock.Event) {
		if e.Kind == lock.EventQueued {
			queued <- struct{}{}
		}
	}})
	held, err := s.Try(ctx, 1)
	require.NoError(t, err)
	_, err = l.With(lock.Options{TTL: 4 * time.Second}).Semaphore(name, 2).Try(ctx, 1) // and dies
	require.NoError(t, err)
	both := acquiring(ctx, mine.Semaphore(name, 2), 2)
	lab.Soon(t, 20*time.Second, "the first waits", queued)
	late.armed.Store(true)
	one := acquiring(ctx, mine.Semaphore(name, 2), 1)
	waitForPermits(t, s, 2)

	other, err := mine.Try(ctx, name)
	require.NoError(t, err)
	kept := other.Keep(ctx)
	require.NoError(t, held.Release(ctx)) // the first is told to look when the dead one's lease is over
	_, err = l.Steal(ctx, name)
	require.NoError(t, err)
	<-kept.Done()
	require.ErrorIs(t, context.Cause(kept), lock.ErrRevoked, "what was said before was heard, too")
	close(late.let)
	next := lab.Soon(t, 15*time.Second, "both permits", both) // half of the time between two looks
	require.NoError(t, next.Err)
	require.NoError(t, next.Lease.Release(ctx))
	require.NoError(t, permit(t, one).Release(ctx))
}
