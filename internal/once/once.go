// Package once sends commands one time. go-redis sends a command again when its reply is lost: one that takes an
// element takes a second one then, and one that removes an element replies that there is none.
package once

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Command is a command of one attempt.
type Command struct{ *redis.Cmd }

// NoRetry keeps go-redis from sending the command a second time.
func (Command) NoRetry() bool { return true }

// New returns a command that is not sent yet.
func New(ctx context.Context, args ...any) Command { return Command{redis.NewCmd(ctx, args...)} }

// Do sends a command. When the reply is lost its error is that of the connection.
func Do(ctx context.Context, client redis.UniversalClient, args ...any) Command {
	cmd := New(ctx, args...)
	_ = client.Process(ctx, cmd) // the command has the error
	return cmd
}
