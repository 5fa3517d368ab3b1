package lock

import (
	"context"
	"time"

	"github.com/luatomic/luatomic/internal/calls"
	"github.com/luatomic/luatomic/internal/lease"
)

// grace is how long a caller still waits for a call after its context has ended or its Locker was closed. The call goes
// on after that.
const grace = 20 * time.Millisecond

// behind makes a call that gives something back or notifies, under a context that does not end with ctx. It returns
// when the call does. When ctx ends or all is closed, it returns nil a moment later, and the call goes on. Close waits
// for the call.
func behind(ctx context.Context, all *calls.Group, call func(context.Context) error) error {
	done := make(chan error, 1)
	all.Add()
	go func() {
		defer all.End()
		done <- call(lease.Detach(ctx))
	}()
	if ctx.Err() == nil {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
		case <-all.Closed():
		}
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return nil
	}
}
