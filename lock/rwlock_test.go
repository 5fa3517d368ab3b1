package lock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// newRW returns a read-write lock of the test's own.
func newRW(t testing.TB, opts *lock.Options) (*lock.RWLock, *lock.Locker, string, *redis.Client) {
	t.Helper()
	l, name, c := lab.NewLocker(t, opts)
	return l.RW(name), l, name, c
}

// waitForRW returns when n wait.
func waitForRW(t testing.TB, rw *lock.RWLock, n int) {
	t.Helper()
	luatomictest.Eventually(t, 20*time.Second, fmt.Sprint(n, " wait"), func() bool {
		info, err := rw.Info(t.Context())
		require.NoError(t, err)
		return info.Waiting == n
	})
}

// inBackground runs an acquire.
func inBackground(ctx context.Context, acquire func(context.Context) (*lock.Lease, error)) <-chan lab.Acquired {
	got := make(chan lab.Acquired, 1)
	go func() {
		lease, err := acquire(ctx)
		got <- lab.Acquired{Lease: lease, Err: err}
	}()
	return got
}

func TestRWLockReadersShareAndWritersDoNot(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rw, l, name, _ := newRW(t, &lock.Options{TTL: time.Minute, Note: "n"})
	one, err := rw.RTry(ctx)
	require.NoError(t, err)
	two, err := rw.RAcquire(ctx)
	require.NoError(t, err)
	_, err = rw.Try(ctx)
	require.ErrorIs(t, err, lock.ErrHeld)
	info, err := rw.Info(ctx)
	require.NoError(t, err)
	require.False(t, info.Writing)
	require.Equal(t, 2, info.Readers)
	require.Equal(t, "n", info.Holders[0].Note)
	require.Equal(t, "rw:{"+name+"}", info.Key)
	require.NoError(t, one.Release(ctx))
	require.NoError(t, two.Release(ctx))
	writer, err := rw.Try(ctx)
	require.NoError(t, err)
	require.Greater(t, writer.Fence(), two.Fence())
	info, err = rw.Info(ctx)
	require.NoError(t, err)
	require.True(t, info.Writing)
	require.Zero(t, info.Readers)
	_, err = rw.RTry(ctx)
	require.ErrorIs(t, err, lock.ErrHeld)
	_, err = rw.Try(ctx)
	require.ErrorIs(t, err, lock.ErrHeld)
	plain, err := l.Try(ctx, name)
	require.NoError(t, err, "the plain lock of that name is another")
	require.NoError(t, plain.Release(ctx))
	was, err := rw.Revoke(ctx, writer.Token())
	require.NoError(t, err)
	require.True(t, was)
	require.ErrorIs(t, writer.Extend(ctx), lock.ErrLost)
	require.NoError(t, rw.Do(ctx, func(context.Context, *lock.Lease) error { return nil }))
	require.NoError(t, rw.RDo(ctx, func(ctx context.Context, _ *lock.Lease) error {
		return rw.RDo(ctx, func(context.Context, *lock.Lease) error { return nil })
	}))
}

// Row 18 and no starvation: a writer that waits is not overtaken by readers, and the
// readers behind it come in together.
func TestRWLockServesInOrder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rw, _, name, _ := newRW(t, &lock.Options{TTL: time.Minute})
	other := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute}).RW(name)
	reader, err := rw.RTry(ctx)
	require.NoError(t, err)
	writer := inBackground(ctx, other.Acquire)
	waitForRW(t, rw, 1)
	_, err = rw.RTry(ctx)
	require.ErrorIs(t, err, lock.ErrHeld, "a writer waits")
	var readers []<-chan lab.Acquired
	for i := range 10 {
		readers = append(readers, inBackground(ctx, []*lock.RWLock{rw, other}[i%2].RAcquire))
		waitForRW(t, rw, i+2)
	}
	last := inBackground(ctx, rw.Acquire)
	waitForRW(t, rw, 12)
	behind := inBackground(ctx, rw.RAcquire)
	waitForRW(t, rw, 13)

	require.NoError(t, reader.Release(ctx))
	w := permit(t, writer)
	require.NoError(t, w.Release(ctx))
	fence := w.Fence()
	var leases []*lock.Lease
	for _, got := range readers {
		lease := permit(t, got)
		require.Greater(t, lease.Fence(), fence)
		fence = lease.Fence()
		leases = append(leases, lease)
	}
	require.Empty(t, last)
	require.Empty(t, behind)
	for _, lease := range leases {
		require.NoError(t, lease.Release(ctx))
	}
	w = permit(t, last)
	require.Empty(t, behind)
	require.Greater(t, w.Fence(), fence)
	require.NoError(t, w.Release(ctx))
	require.NoError(t, permit(t, behind).Release(ctx))
}

// Row 17: the lease of a reader that died ends by itself, although others read
// all the time.
func TestRWLockCrashedReaderIsNotKeptUpByLiveOnes(t *testing.T) {
	t.Parallel()
	rw, l, name, _ := newRW(t, &lock.Options{TTL: time.Minute, Claim: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	dead, err := l.With(lock.Options{TTL: 200 * time.Millisecond}).RW(name).RTry(ctx)
	require.NoError(t, err)
	cycling := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := rw.RDo(ctx, func(context.Context, *lock.Lease) error {
				return nil
			}); err != nil && ctx.Err() == nil {
				cycling <- err
				return
			}
		}
		cycling <- nil
	}()
	begun := time.Now()
	writer, err := rw.Acquire(ctx)
	require.NoError(t, err)
	require.Less(t, time.Since(begun), 20*time.Second, "not the minute of the others")
	require.ErrorIs(t, dead.Err(), lock.ErrLost)
	require.NoError(t, writer.Release(t.Context()))
	cancel()
	require.NoError(t, <-cycling)
}

// Readers that died do not keep the lock from a writer, however many there are.
func TestManyDeadReadersKeepNoWriterOut(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute, Note: "reader"})
	rw := l.RW(name)
	reader, err := rw.RTry(t.Context())
	require.NoError(t, err)
	key, token := reader.Key(), reader.Token()
	require.NoError(t, reader.Release(t.Context()))
	const dead = 600
	over := float64(time.Now().Add(-time.Hour).UnixMilli())
	members := []redis.Z{{Score: 1e15 + dead, Member: "used"}}
	for i := range dead {
		permit := fmt.Sprintf("%s%d:1", strings.TrimSuffix(token, ":1"), i)
		members = append(members, redis.Z{Score: over, Member: permit},
			redis.Z{Score: over, Member: permit + "\nreader"})
	}
	require.NoError(t, c.ZAdd(t.Context(), key, members...).Err())
	info, err := rw.Info(t.Context())
	require.NoError(t, err)
	require.Zero(t, info.Readers)
	writer, err := rw.Try(t.Context())
	require.NoError(t, err)
	require.NoError(t, writer.Release(t.Context()))
}

// Info counts no reader that died, however many there are.
func TestInfoOfManyDeadReaders(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	rw := l.RW(name)
	reader, err := rw.RTry(t.Context())
	require.NoError(t, err)
	require.NoError(t, reader.Release(t.Context()))
	const dead = 1500
	members := []redis.Z{{Score: 1e15 + dead, Member: "used"}}
	for i := range dead {
		members = append(members, redis.Z{Score: 1000, Member: fmt.Sprintf("dead.%d:1", i)})
	}
	require.NoError(t, c.ZAdd(t.Context(), reader.Key(), members...).Err())
	info, err := rw.Info(t.Context())
	require.NoError(t, err)
	require.Zero(t, info.Readers)
}
