package send

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Ahead is the client for one call of a script. It sends a command before the script, on the same connection if both
// belong to one hash slot. Each retry sends the command again, so the command must be one that may run twice.
type Ahead struct {
	redis.UniversalClient
	New  func() redis.Cmder // makes the command of one attempt: a hook may replace its arguments
	Size int                // bytes of the command, which count in the round trip

	cmd redis.Cmder
}

// Next returns the command for the next attempt.
func (c *Ahead) Next() redis.Cmder {
	c.cmd = c.New()
	return c.cmd
}

// Err is the error of the command in the last attempt. It is valid once the call has returned a reply. After another
// end of the call the command may still be in use.
func (c *Ahead) Err() error { return c.cmd.Err() }

// OnceCommand is a command that is attempted once.
type OnceCommand struct{ *redis.Cmd }

// NoRetry keeps go-redis from sending the command a second time.
func (OnceCommand) NoRetry() bool { return true }

// NewOnce returns a command that is not sent yet.
func NewOnce(ctx context.Context, args ...any) OnceCommand {
	return OnceCommand{redis.NewCmd(ctx, args...)}
}

// Once sends a command without a retry. If the reply is lost, the error is that of the connection.
func Once(ctx context.Context, client redis.UniversalClient, args ...any) OnceCommand {
	cmd := NewOnce(ctx, args...)
	_ = client.Process(ctx, cmd) // the command has the error
	return cmd
}

// most bounds the calls at once, so that they do not use up the connection pool of a client.
const most = 16

// Abreast calls f with 0 to n-1, and returns when all calls have ended.
func Abreast(n int, f func(i int)) {
	var calls sync.WaitGroup
	var begun atomic.Int64
	for range min(n, most) {
		calls.Go(func() {
			for i := int(begun.Add(1)) - 1; i < n; i = int(begun.Add(1)) - 1 {
				f(i)
			}
		})
	}
	calls.Wait()
}

// OneServer reports whether one server has all keys and channels of the client. Only a redis.Client, or a struct that
// embeds one, has the method Conn.
func OneServer(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case interface{ Conn() *redis.Conn }:
		return true
	case *redis.AutoPipeliner:
		return piped(c)
	}
	return false
}

// piped reports whether an AutoPipeliner, which does not name its client, wraps a redis.Client: only that runs a
// transaction without keys. It sends nothing.
func piped(c *redis.AutoPipeliner) (one bool) {
	_ = c.Watch(context.Background(), func(*redis.Tx) error {
		one = true
		return nil
	})
	return one
}

var errNilClient = errors.New("the client is nil: make it before its first call")

// CheckClient returns an error for a client that is nil, or a nil pointer, also behind a guard. go-redis panics on its
// first use, often in a goroutine that no caller can recover. So what is made of a client checks it with its options.
func CheckClient(client redis.UniversalClient) error {
	if g, ok := client.(interface{ Unguarded() redis.UniversalClient }); ok {
		client = g.Unguarded()
	}
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errNilClient
	}
	return nil
}
