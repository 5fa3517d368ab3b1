package send

import (
	"context"

	"github.com/redis/go-redis/v9"
)

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
