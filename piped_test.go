package luatomic_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// An AutoPipeliner is a client as others are: a delayed job, a lock that is handed over and a call, by notifications.
func TestEverythingOnAnAutoPipeliner(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	piped, err := client.AutoPipeline()
	require.NoError(t, err)
	t.Cleanup(func() { _ = piped.Close() })

	q := lab.Must(luatomic.NewQueue(piped, name, nil))
	lab.Must(q.Push(ctx, luatomic.Job{Body: []byte("now")},
		luatomic.Job{Body: []byte("later"), Delay: 100 * time.Millisecond}))
	done, err := q.Consume(ctx, &luatomic.ConsumeOptions{Drain: true},
		func(context.Context, *luatomic.Delivery) error { return nil })
	require.NoError(t, err)
	require.EqualValues(t, 2, done.Acked)

	holder, waiter := luatomic.NewLocker(piped, nil), luatomic.NewLocker(piped, nil)
	t.Cleanup(func() { _ = holder.Close() })
	t.Cleanup(func() { _ = waiter.Close() })
	held := lab.Must(holder.Acquire(ctx, name))
	handed := make(chan error, 1)
	go func() {
		handed <- waiter.Do(ctx, name, func(context.Context, *luatomic.Lease) error { return nil })
	}()
	luatomictest.Eventually(t, 20*time.Second, "one waits", func() bool {
		return len(lab.Must(holder.Info(ctx, name)).Waiters) == 1
	})
	require.NoError(t, held.Release(ctx))
	require.NoError(t, <-handed)

	upper := luatomic.NewMethod[string, string]("upper")
	bus := lab.Must(luatomic.NewBus(piped, name, nil))
	require.NoError(t, upper.Serve(bus, func(_ context.Context, s string) (string, error) {
		return strings.ToUpper(s), nil
	}, nil))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- bus.Run(running) }()
	require.Equal(t, "X", lab.Must(upper.Call(ctx, bus, "x", nil)))
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}
