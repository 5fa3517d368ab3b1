package lab

import (
	"cmp"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// AcquireLater starts an Acquire that reports on the channel.
func AcquireLater(ctx context.Context, l *lock.Locker, name string) <-chan Acquired {
	got := make(chan Acquired, 1)
	go func() {
		lease, err := l.Acquire(ctx, name)
		got <- Acquired{Lease: lease, Err: err}
	}()
	return got
}

// Acquired is the result of an Acquire: a lease or an error.
type Acquired struct {
	Lease *lock.Lease
	Err   error
	Id    int
}

// NewLocker returns a locker and the name of a lock for the test.
func NewLocker(t testing.TB, opts *lock.Options) (*lock.Locker, string, *redis.Client) {
	t.Helper()
	client := luatomictest.Client(t)
	return Locker(t, client, opts), luatomictest.Namespace(t), client
}

// Locker returns a locker that is closed at the end of the test. Without a claim it has one that outlasts a pause of
// the machine.
func Locker(t testing.TB, c redis.UniversalClient, opts *lock.Options) *lock.Locker {
	t.Helper()
	var own lock.Options
	if opts != nil {
		own = *opts
	}
	own.Claim = cmp.Or(own.Claim, time.Minute)
	l := lock.New(c, &own)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// RoundTrips counts what a client sends: a command, or a pipeline of them.
type RoundTrips struct{ atomic.Int64 }

// DialHook leaves connections alone.
func (*RoundTrips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook counts a command.
func (n *RoundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n.Add(1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook counts a pipeline.
func (n *RoundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n.Add(1)
		return next(ctx, cmds)
	}
}
