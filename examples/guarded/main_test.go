package main

import (
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// locker hands a lock over for a minute: a process that waits can stand still for a while on a busy machine.
func locker(t *testing.T, client redis.UniversalClient) *luatomic.Locker {
	locks := luatomic.NewLocker(client, &luatomic.LockerOptions{Claim: time.Minute})
	t.Cleanup(func() { _ = locks.Close() })
	return locks
}

func stored(t *testing.T, client *redis.Client, page string) string {
	t.Helper()
	text, err := client.HGet(t.Context(), "page:{"+page+"}", "text").Result()
	require.NoError(t, err)
	return text
}

func TestWritersLoseNoLine(t *testing.T) {
	t.Parallel()
	client, page := luatomictest.Client(t), luatomictest.Namespace(t)
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			err := run(t.Context(), client, locker(t, client), page, func(text string) string {
				return text + "line\n"
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	require.Equal(t, strings.Repeat("line\n", 8), stored(t, client, page))
}

// The first writer is paused for longer than its lease; another one writes meanwhile.
func TestLateWriterIsRefused(t *testing.T) {
	t.Parallel()
	client, page := luatomictest.Client(t), luatomictest.Namespace(t)
	locks := luatomic.NewLocker(client, &luatomic.LockerOptions{TTL: 50 * time.Millisecond})
	defer func() { _ = locks.Close() }()
	paused, err := locks.Acquire(t.Context(), page) // nothing renews it
	require.NoError(t, err)
	err = run(t.Context(), client, locker(t, client), page, func(string) string { return "new" })
	require.NoError(t, err, "waits for the lease's end")

	err = store(t.Context(), client, page, version{paused.Fence(), 1}, "old")
	require.ErrorIs(t, err, errStale)
	require.Equal(t, "new", stored(t, client, page))
}

// The write of a former holder comes after the next one has read the page, and before that one writes: it would be
// undone.
func TestAWriteBehindTheReadOfALaterHolderIsRefused(t *testing.T) {
	t.Parallel()
	client, page := luatomictest.Client(t), luatomictest.Namespace(t)
	for _, fence := range []int64{7, 8, 8} { // the second holder's read is repeated, since its reply was lost
		text, err := read(t.Context(), client, page, fence)
		require.NoError(t, err)
		require.Empty(t, text)
	}
	require.ErrorIs(t, store(t.Context(), client, page, version{7, 1}, "late"), errStale)
	require.NoError(t, store(t.Context(), client, page, version{8, 1}, "next"))
	_, err := read(t.Context(), client, page, 7)
	require.ErrorIs(t, err, errStale, "a late copy of the first read")
	text, err := read(t.Context(), client, page, 8)
	require.NoError(t, err)
	require.Equal(t, "next", text)
	require.NoError(t, store(t.Context(), client, page, version{8, 2}, "final"))
	require.ErrorIs(t, store(t.Context(), client, page, version{8, 1}, "next"), errStale, "a read begins no new count")
}

// A holder may write more than once; the writes have the same fence.
func TestSameHolderWritesAgain(t *testing.T) {
	t.Parallel()
	client, page := luatomictest.Client(t), luatomictest.Namespace(t)
	for i, text := range []string{"draft", "final"} {
		require.NoError(t, store(t.Context(), client, page, version{7, int64(i + 1)}, text))
	}
	require.Equal(t, "final", stored(t, client, page))
}

// The reply to a write is lost, its repeat and the next write of the holder are answered; then the first copy comes.
func TestALateCopyOfAnEarlierWriteIsRefused(t *testing.T) {
	t.Parallel()
	client, page := luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, store(t.Context(), client, page, version{7, 1}, "draft"))
	require.NoError(t, store(t.Context(), client, page, version{7, 1}, "draft"), "its repeat")
	require.NoError(t, store(t.Context(), client, page, version{7, 2}, "final"))
	require.ErrorIs(t, store(t.Context(), client, page, version{7, 1}, "draft"), errStale)
	require.Equal(t, "final", stored(t, client, page))
	require.NoError(t, store(t.Context(), client, page, version{8, 1}, "next"), "each holder counts from 1")
}

// The generated function is that of the script.
func TestGeneratedFileIsUpToDate(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "tool", "luagen", "-check", "-strict").CombinedOutput()
	require.NoError(t, err, "%s", out)
}
