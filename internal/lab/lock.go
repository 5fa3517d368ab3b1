package lab

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// acquireLater starts an Acquire that reports on the channel.
func AcquireLater(ctx context.Context, l *lock.Locker, name string) <-chan Acquired {
	got := make(chan Acquired, 1)
	go func() {
		lease, err := l.Acquire(ctx, name)
		got <- Acquired{Lease: lease, Err: err}
	}()
	return got
}

// acquired is a lease that came after a wait, or why it did not.
type Acquired struct {
	Lease *lock.Lease
	Err   error
	Id    int
}

// newLocker returns a locker and the name of a lock of the test's own.
func NewLocker(t testing.TB, opts *lock.Options) (*lock.Locker, string, *redis.Client) {
	t.Helper()
	client := luatomictest.Client(t)
	return Locker(t, client, opts), luatomictest.Namespace(t), client
}

// locker makes a locker that is closed with the test.
func Locker(t testing.TB, c redis.UniversalClient, opts *lock.Options) *lock.Locker {
	t.Helper()
	l := lock.New(c, opts)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}
