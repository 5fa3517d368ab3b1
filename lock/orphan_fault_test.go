package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// An acquire is more than one request: a second attempt where the first took too long, an extension that waits for
// replicas. The error of one that was not sent says nothing of the one before it, which took the lock.
func TestAnAcquireThatIsCutOffBetweenItsRequestsHoldsNothing(t *testing.T) {
	t.Parallel()
	type acquire func(ctx context.Context, l *lock.Locker) error
	try := func(ctx context.Context, l *lock.Locker) error { _, err := l.Try(ctx, "x"); return err }
	all := func(ctx context.Context, l *lock.Locker) error { _, err := l.AcquireAll(ctx, "x", "y"); return err }
	steal := func(ctx context.Context, l *lock.Locker) error { _, err := l.Steal(ctx, "x"); return err }
	replicas := lock.Options{TTL: time.Minute, Replicas: 1}
	tagged := lock.Options{TTL: time.Minute, Replicas: 1, Tag: "t"}
	short := lock.Options{TTL: time.Second, Afterlife: time.Minute}
	for what, of := range map[string]struct {
		opts    lock.Options
		script  *lua.Script
		outage  time.Duration
		acquire acquire
	}{
		"AcquireAll, its replicas":         {replicas, &lockscript.TryScript, 0, all},
		"AcquireAll, tagged, its replicas": {tagged, &lockscript.AcquireAllScript, 0, all},
		"Steal, its replicas":              {replicas, &lockscript.ForceScript, 0, steal},
		"Try, its second attempt":          {short, &lockscript.TryScript, 1100 * time.Millisecond, try},
		"Steal, its second attempt":        {short, &lockscript.ForceScript, 1100 * time.Millisecond, steal},
		"AcquireAll, its second attempt":   {short, &lockscript.TryScript, 1100 * time.Millisecond, all},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := luatomictest.StartServer(t)
			warm := of.opts
			warm.Replicas = 0
			require.NoError(t, of.acquire(t.Context(), lab.Locker(t, server.Client(), &warm)))
			require.NoError(t, server.Client().FlushDB(t.Context()).Err())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := server.Client()
			c.AddHook(&lab.Around{Sha: lab.Digest(of.script), Do: func(run func() error) error {
				time.Sleep(of.outage)
				defer cancel()
				return run()
			}})
			err := of.acquire(ctx, lab.Locker(t, c, &of.opts))
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, lua.ErrOutcomeUnknown, "it had the lock for a moment")
			require.NotErrorIs(t, err, lua.ErrNotExecuted)
			watch := lab.Locker(t, server.Client(), &warm)
			luatomictest.Eventually(t, 500*time.Millisecond, "nobody holds the lock", func() bool {
				info, err := watch.Info(t.Context(), "x")
				return err == nil && !info.Held
			})
		})
	}
}
