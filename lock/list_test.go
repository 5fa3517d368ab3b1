package lock_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// named reads a list into a map by name.
func named[T any](t testing.TB, list iter.Seq2[T, error], name func(T) string) map[string]T {
	t.Helper()
	all := make(map[string]T)
	for info, err := range list {
		require.NoError(t, err)
		all[name(info)] = info
	}
	return all
}

func TestListOfEachKindShowsWhatIsInUse(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, tag := range []string{"", "t"} {
		prefix := luatomictest.Namespace(t) + "*:" // a star in a prefix is no pattern
		opts := &lock.Options{Prefix: prefix, Tag: tag, TTL: time.Minute, Note: "me"}
		l := lab.Locker(t, luatomictest.Client(t), opts)
		other := lab.Locker(t, luatomictest.Client(t), &lock.Options{
			Prefix: prefix + "2", Tag: tag, TTL: time.Minute,
		})
		_, err := l.Try(ctx, "lock")
		require.NoError(t, err)
		_, err = l.Semaphore("sem", 5).Try(ctx, 2)
		require.NoError(t, err)
		_, err = l.RW("write").Try(ctx)
		require.NoError(t, err)
		for range 2 {
			_, err = l.RW("read").RTry(ctx)
			require.NoError(t, err)
		}
		lease, err := l.Semaphore("free", 1).Try(ctx, 1)
		require.NoError(t, err)
		require.NoError(t, lease.Release(ctx))
		_, err = other.Semaphore("others", 1).Try(ctx, 1)
		require.NoError(t, err)

		locks := named(t, l.List(ctx), func(i lock.Info) string { return i.Name })
		require.Len(t, locks, 1, tag)
		require.Equal(t, "me", locks["lock"].Note)
		sems := named(t, l.ListSemaphores(ctx), func(i lock.SemaphoreInfo) string { return i.Name })
		require.Len(t, sems, 1, tag)
		info, err := l.Semaphore("sem", 5).Info(ctx)
		require.NoError(t, err)
		require.Equal(t, info.Key, sems["sem"].Key)
		require.Equal(t, 2, sems["sem"].Used)
		require.Equal(t, 5, sems["sem"].Limit)
		require.Equal(t, info.Holders[0].Token, sems["sem"].Holders[0].Token)
		rws := named(t, l.ListRW(ctx), func(i lock.RWInfo) string { return i.Name })
		require.Len(t, rws, 2, tag)
		require.True(t, rws["write"].Writing)
		require.Zero(t, rws["write"].Readers)
		require.False(t, rws["read"].Writing)
		require.Equal(t, 2, rws["read"].Readers)
		require.Equal(t, "me", rws["read"].Holders[0].Note)
	}
}

func TestAListOfAClientInAStruct(t *testing.T) {
	t.Parallel()
	name := luatomictest.Namespace(t)
	l := lab.Locker(t, struct{ *redis.Client }{luatomictest.Client(t)}, &lock.Options{Prefix: name})
	_, err := l.Try(t.Context(), "lock")
	require.NoError(t, err)
	held := named(t, l.List(t.Context()), func(i lock.Info) string { return i.Name })
	require.Contains(t, held, "lock")
}

func TestListsOnAClusterReadEachMaster(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l := lab.Locker(t, luatomictest.StartCluster(t).Client(), &lock.Options{TTL: time.Minute})
	var want []string
	for i := range 12 {
		name := fmt.Sprint("s", i)
		want = append(want, name)
		_, err := l.Semaphore(name, 1).Try(ctx, 1)
		require.NoError(t, err)
		_, err = l.RW(name).RTry(ctx)
		require.NoError(t, err)
	}
	var sems, rws []string
	for info, err := range l.ListSemaphores(ctx) {
		require.NoError(t, err)
		sems = append(sems, info.Name)
	}
	for info, err := range l.ListRW(ctx) {
		require.NoError(t, err)
		rws = append(rws, info.Name)
	}
	slices.Sort(want)
	for _, got := range [][]string{sems, rws} {
		slices.Sort(got)
		require.Equal(t, want, got)
	}
	for range l.ListRW(ctx) {
		break // a list that nobody reads on ends
	}
}

// A lock whose queue is a value of another program is passed over, as one whose record is: the others are listed.
func TestAListPassesOverAQueueOfAnotherProgram(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := luatomictest.Client(t)
	l := lab.Locker(t, c, &lock.Options{Prefix: luatomictest.Namespace(t) + ":", TTL: time.Minute})
	for _, name := range []string{"one", "foreign"} {
		lease, err := l.Try(ctx, name)
		require.NoError(t, err)
		permit, err := l.Semaphore(name, 1).Try(ctx, 1)
		require.NoError(t, err)
		if name == "foreign" {
			for _, record := range []string{lease.Key(), permit.Key()} {
				queue := strings.Replace(strings.Replace(record, "lock:", "lockq:", 1), "sem:", "semq:", 1)
				require.NoError(t, c.Set(ctx, queue, "x", time.Minute).Err())
			}
		}
	}
	require.Len(t, named(t, l.List(ctx), func(i lock.Info) string { return i.Name }), 1)
	require.Len(t, named(t, l.ListSemaphores(ctx), func(i lock.SemaphoreInfo) string { return i.Name }), 1)
}

// A list ends with its context, also on a server that hangs for as long as the client waits for a reply.
func TestAListEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	l := lab.Locker(t, server.Client(func(o *redis.Options) { o.ReadTimeout = time.Minute }), nil)
	lease, err := l.Try(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, lease.Err())
	server.Pause()
	defer server.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		for _, err := range l.List(ctx) {
			ended <- err
		}
	}()
	require.ErrorIs(t, lab.Soon(t, 10*time.Second, "the end of the list", ended), context.DeadlineExceeded)
}

// A server that hangs hides no lock of another one.
func TestAListOfARingShowsTheLocksOfServersThatAnswer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const locks = 20 // each server has some
	lab.EachHangs(t, func(ring *redis.Ring) {
		for i := range locks {
			_, err := lab.Locker(t, ring, &lock.Options{TTL: time.Hour}).Try(ctx, fmt.Sprint(i))
			require.NoError(t, err)
		}
	}, func(ring *redis.Ring, live string) {
		var want, found []string
		for i := range locks {
			if lab.Must(ring.GetShardClientForKey(fmt.Sprintf("lock:{%d}", i))).Options().Addr == live {
				want = append(want, fmt.Sprint(i))
			}
		}
		var failed error
		for info, err := range lab.Locker(t, ring, nil).List(ctx) {
			if failed = err; err == nil {
				found = append(found, info.Name)
			}
		}
		require.ElementsMatch(t, want, found)
		require.Error(t, failed, "the last one says that a server did not answer")
	})
}
