package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// ledger records which host did which night.
type ledger struct {
	mu   sync.Mutex
	done map[time.Time][]string
}

func (l *ledger) job(host string) Job {
	return func(_ context.Context, night time.Time) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.done[night] = append(l.done[night], host)
		return nil
	}
}

// hosts are those that worked, one entry for each run of a job.
func (l *ledger) hosts() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, hosts := range l.done {
		all = append(all, hosts...)
	}
	return all
}

// start runs a process of the program; stop ends it in good order.
func start(t *testing.T, client redis.UniversalClient, name, host string, job Job) (stop func()) {
	t.Helper()
	ctx, interrupt := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, client, config{
			name: name, host: host, job: job,
			period: 50 * time.Millisecond, lease: 10 * time.Second, pause: 10 * time.Millisecond,
		})
	}()
	stop = sync.OnceFunc(func() {
		interrupt()
		require.NoError(t, <-ended, "Ctrl-C is no failure")
	})
	t.Cleanup(stop)
	return stop
}

// has reports whether the host did the work of a night.
func (l *ledger) has(host string) func() bool {
	return func() bool {
		for _, h := range l.hosts() {
			if h == host {
				return true
			}
		}
		return false
	}
}

func TestOneLeaderWorksAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	book := &ledger{done: map[time.Time][]string{}}
	stopA := start(t, client, name, "a", book.job("a"))
	luatomictest.Eventually(t, 10*time.Second, "a leads", book.has("a"))
	stopB := start(t, client, name, "b", book.job("b"))
	before := len(book.hosts())
	luatomictest.Eventually(t, 10*time.Second, "more nights pass", func() bool { return len(book.hosts()) > before+1 })
	require.NotContains(t, book.hosts(), "b", "one of two works")

	stopA()
	luatomictest.Eventually(t, 10*time.Second, "b takes over", book.has("b"))
	stopB()
	for night, hosts := range book.done {
		require.Len(t, hosts, 1, "the night of %v", night)
	}
}

func TestDeadLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	dead := luatomictest.Client(t)
	locks := luatomic.NewLocker(dead, &luatomic.LockerOptions{TTL: 300 * time.Millisecond})
	defer func() { _ = locks.Close() }()
	_, err := locks.Election(name).Campaign(t.Context(), "dead") // nothing renews it, as after a crash
	require.NoError(t, err)
	book := &ledger{done: map[time.Time][]string{}}
	start(t, client, name, "a", book.job("a"))
	luatomictest.Eventually(t, 10*time.Second, "a takes over", book.has("a"))
}

func TestFailedNightIsDoneAgain(t *testing.T) {
	t.Parallel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	book, failed := &ledger{done: map[time.Time][]string{}}, make(chan struct{})
	fails := sync.OnceFunc(func() { close(failed) })
	start(t, client, name, "a", func(context.Context, time.Time) error {
		fails()
		return errors.New("disk full")
	})
	<-failed
	start(t, client, name, "b", book.job("b"))
	luatomictest.Eventually(t, 10*time.Second, "b has a turn", book.has("b"))
}

func TestMissingServerIsNamed(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://:secret@127.0.0.1:1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := open(ctx)
	require.ErrorContains(t, err, "cannot use REDIS_URL, 127.0.0.1:1: ")
	require.ErrorContains(t, err, "; start a server there")
	require.NotContains(t, err.Error(), "secret")
}
