package lock_test

import (
	"context"
	"fmt"
	"maps"
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

// Entries of a queue and owners in a record are data. A script publishes below the prefix of its caller only, whatever
// they name, and a crafted entry is not granted the lock.
func TestNoScriptPublishesOutsideItsPrefix(t *testing.T) {
	t.Parallel()
	lab.Unmarked(t)
	ctx := t.Context()
	server := luatomictest.StartServer(t)
	c := server.Client()
	all := c.PSubscribe(ctx, "*")
	defer func() { _ = all.Close() }()
	_, err := all.Receive(ctx)
	require.NoError(t, err)
	l := lab.Locker(t, c, &lock.Options{Prefix: "a:", TTL: time.Minute})
	tokens := []string{"b:lock:c:P.1", "*.1", "../b:lock:c:P.1", "", ".", "b:lock:c:P"}
	for i, token := range tokens {
		require.NoError(t, c.RPush(ctx, "a:lockq:{x}", fmt.Sprintf("1000 %s 0 1000 ", token)).Err())
		require.NoError(t, c.ZAdd(ctx, "a:semq:{x}", redis.Z{Score: float64(i), Member: token + ":1 1000\n"}).Err())
	}
	require.NoError(t, c.Set(ctx, "a:lock:{x}", "2 1 1 - b:lock:c:P.1 0 1000 ", time.Minute).Err())
	_, err = l.ForceRelease(ctx, "x", 0)
	require.NoError(t, err)
	lease, err := l.Acquire(ctx, "x")
	require.NoError(t, err, "none of the entries got it")
	require.NoError(t, lease.Release(ctx))
	s := l.Semaphore("x", 1)
	require.NoError(t, s.Resize(ctx, 1))
	permit, err := s.Acquire(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, permit.Release(ctx))
	require.NoError(t, c.Publish(ctx, "end", "").Err())
	for message := range all.Channel() {
		if message.Channel == "end" {
			return
		}
		require.True(t, strings.HasPrefix(message.Channel, "a:"), message.Channel)
	}
}

// A read-write lock with 10 000 readers: no call of a script takes 5 ms of the server.
func TestTenThousandReadersCostNoScriptFiveMilliseconds(t *testing.T) {
	t.Parallel()
	lab.Unmarked(t)
	ctx := t.Context()
	server := luatomictest.StartServer(t)
	c := server.Client()
	queued := make(chan struct{}, 1)
	l := lab.Locker(t, c, &lock.Options{TTL: time.Minute, Observe: func(e lock.Event) {
		if e.Kind == lock.EventQueued {
			queued <- struct{}{}
		}
	}})
	rw := l.RW("x")
	first, err := rw.RTry(ctx)
	require.NoError(t, err)
	ends := float64(time.Now().Add(time.Hour).UnixMilli())
	readers := make([]redis.Z, 0, 20000)
	for i := range 10000 {
		token := fmt.Sprintf("reader.%d:1", i)
		readers = append(readers, redis.Z{Score: ends, Member: token}, redis.Z{Score: ends, Member: token + "\nnote"})
	}
	require.NoError(t, c.ZAdd(ctx, "rw:{x}", readers...).Err())
	require.NoError(t, c.ZIncrBy(ctx, "rw:{x}", 10000, "used").Err())
	calls := func() {
		reader, err := rw.RTry(ctx)
		require.NoError(t, err)
		require.NoError(t, reader.Extend(ctx))
		_, err = rw.Try(ctx)
		require.ErrorIs(t, err, lock.ErrHeld)
		waits, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, 1)
		go func() { _, err := rw.Acquire(waits); ended <- err }()
		lab.Soon(t, 20*time.Second, "it waits", queued)
		cancel()
		require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the end of Acquire", ended), lock.ErrHeld)
		_, err = rw.Info(ctx)
		require.NoError(t, err)
		require.NoError(t, reader.Release(ctx))
	}
	calls()                                 // loads the scripts
	least := make(map[string]time.Duration) // of each script: a busy machine stops the server now and then
	slowest := func() time.Duration { return slices.Max(slices.Collect(maps.Values(least))) }
	for try := 0; try < 50 && (try == 0 || slowest() > 5*time.Millisecond); try++ {
		require.NoError(t, c.ConfigSet(ctx, "slowlog-log-slower-than", "0").Err())
		require.NoError(t, c.Do(ctx, "SLOWLOG", "RESET").Err())
		calls()
		log, err := c.SlowLogGet(ctx, 100).Result()
		require.NoError(t, err)
		seen := 0
		for _, entry := range log {
			if strings.HasPrefix(strings.ToUpper(entry.Args[0]), "EVALSHA") {
				seen++
				if took, known := least[entry.Args[1]]; !known || entry.Duration < took {
					least[entry.Args[1]] = entry.Duration
				}
			}
		}
		require.GreaterOrEqual(t, seen, 6)
	}
	require.LessOrEqual(t, slowest(), 5*time.Millisecond)
	require.NoError(t, first.Release(ctx))
}
