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

// A request whose connection breaks is sent again. The first copy of it arrives when its caller has been refused, or
// has released what it got: nobody holds anything by it.
func TestACopyOfARequestHoldsNothing(t *testing.T) {
	t.Parallel()
	one := func(l *lock.Lease, err error) (lock.Leases, error) { return lock.Leases{l}, err }
	tagged := &lock.Options{TTL: time.Minute, Tag: "t"}
	for kind, of := range map[string]struct {
		script *lua.Script
		opts   *lock.Options
		obtain func(ctx context.Context, l *lock.Locker, name string) (lock.Leases, error)
	}{
		"Try": {&lockscript.TryScript, nil, func(ctx context.Context, l *lock.Locker, name string) (lock.Leases,
			error) {
			return one(l.Try(ctx, name))
		}},
		"Steal": {&lockscript.ForceScript, nil, func(ctx context.Context, l *lock.Locker, name string) (lock.Leases,
			error) {
			return one(l.Steal(ctx, name))
		}},
		"Acquire": {&lockscript.TryScript, nil, func(ctx context.Context, l *lock.Locker, name string) (lock.Leases,
			error) {
			return one(l.Acquire(ctx, name))
		}},
		"AcquireAll": {&lockscript.TryScript, nil, func(ctx context.Context, l *lock.Locker, name string) (lock.Leases,
			error) {
			return l.AcquireAll(ctx, name)
		}},
		"AcquireAll, tagged": {&lockscript.AcquireAllScript, tagged,
			func(ctx context.Context, l *lock.Locker, name string) (lock.Leases, error) {
				return l.AcquireAll(ctx, name)
			}},
		"Semaphore": {&lockscript.SemAcquireScript, nil,
			func(ctx context.Context, l *lock.Locker, name string) (lock.Leases, error) {
				return one(l.Semaphore(name, 1).Try(ctx, 1))
			}},
		"RWLock": {&lockscript.SemAcquireScript, nil, func(ctx context.Context, l *lock.Locker,
			name string) (lock.Leases,
			error) {
			return one(l.RW(name).Acquire(ctx))
		}},
	} {
		for _, when := range []string{"refused", "released", "expired", "gone", "noticed"} {
			refused := when == "refused"
			next := of.obtain
			if kind == "Steal" {
				next = func(ctx context.Context, l *lock.Locker, name string) (lock.Leases, error) {
					return one(l.Try(ctx, name))
				}
			}
			if kind == "Steal" && refused {
				continue // it takes the lock from its holder
			}
			t.Run(kind+", "+when, func(t *testing.T) {
				t.Parallel()
				ctx, name := t.Context(), luatomictest.Namespace(t)
				var opts lock.Options
				if of.opts != nil {
					opts = *of.opts
				}
				opts.TTL = time.Minute
				direct := luatomictest.Client(t)
				other := lab.Locker(t, direct, &opts)
				patience := 20 * time.Second
				if when != "refused" && when != "released" {
					opts.TTL, patience = 3*time.Second, 2500*time.Millisecond
				}
				c, h := lab.HoldUp(t, of.script, 0)
				l := lab.Locker(t, c, &opts)
				var held lock.Leases
				if refused {
					held = lab.Must(of.obtain(ctx, other, name))
					short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
					defer cancel()
					_, err := of.obtain(short, l, name)
					var by *lock.HeldError
					require.ErrorAs(t, err, &by)
				} else {
					held = lab.Must(of.obtain(ctx, l, name))
				}
				switch when {
				case "expired":
					<-time.After(time.Until(held[0].Deadline()) + 1500*time.Millisecond) // the record is gone
					require.ErrorIs(t, held.Release(ctx), lock.ErrLost)
				case "gone":
					require.NoError(t, direct.Del(ctx, held[0].Key()).Err())
					require.ErrorIs(t, held.Release(ctx), lock.ErrLost)
				case "noticed":
					kept := held.Keep(ctx)
					require.NoError(t, direct.Del(ctx, held[0].Key()).Err())
					<-kept.Done()
					luatomictest.Eventually(t, 20*time.Second, "it is made void, in the background", func() bool {
						return direct.Exists(ctx, held[0].Key()).Val() == 1
					})
				default:
					require.NoError(t, held.Release(ctx))
				}
				h.Arrive(t)
				soon, cancel := context.WithTimeout(ctx, patience)
				defer cancel()
				held, err := next(soon, other, name)
				require.NoError(t, err, "nobody holds it")
				require.NoError(t, held.Release(ctx))
			})
		}
	}
}

// A copy of a request for more permits than there are arrives when a new limit allows them.
func TestACopyOfARequestAboveTheLimitHoldsNothing(t *testing.T) {
	t.Parallel()
	ctx, name := t.Context(), luatomictest.Namespace(t)
	c, late := lab.HoldUp(t, &lockscript.SemAcquireScript, 0)
	opts := &lock.Options{TTL: time.Minute}
	_, err := lab.Locker(t, c, opts).Semaphore(name, 1).Try(ctx, 2)
	require.ErrorIs(t, err, lock.ErrLimit)
	other := lab.Locker(t, luatomictest.Client(t), opts).Semaphore(name, 1)
	require.NoError(t, other.Resize(ctx, 2))
	late.Arrive(t)
	permit, err := other.Try(ctx, 2)
	require.NoError(t, err, "nobody holds any")
	require.NoError(t, permit.Release(ctx))
}

// A copy of a request that changed a setting arrives after the next one that did.
func TestALateCopyOfASettingChangesNothing(t *testing.T) {
	t.Parallel()
	t.Run("Proclaim", func(t *testing.T) {
		t.Parallel()
		c, held := lab.HoldUp(t, &lockscript.NoteScript, 0)
		e := lab.Locker(t, c, &lock.Options{TTL: time.Minute}).Election(luatomictest.Namespace(t))
		leads := lab.Must(e.Campaign(t.Context(), "new"))
		require.NoError(t, leads.Proclaim(t.Context(), "draining"))
		require.NoError(t, leads.Proclaim(t.Context(), "ready"))
		held.Arrive(t)
		require.Equal(t, "ready", lab.Must(e.Leader(t.Context())).Value)
		require.NoError(t, leads.Resign(t.Context()))
	})
	t.Run("Resize", func(t *testing.T) {
		t.Parallel()
		c, held := lab.HoldUp(t, &lockscript.SemResizeScript, 0)
		s := lab.Locker(t, c, &lock.Options{TTL: time.Minute}).Semaphore(luatomictest.Namespace(t), 5)
		permit := lab.Must(s.Try(t.Context(), 1))
		require.NoError(t, s.Resize(t.Context(), 100))
		require.NoError(t, s.Resize(t.Context(), 2))
		held.Arrive(t)
		require.Equal(t, 2, lab.Must(s.Info(t.Context())).Limit)
		require.NoError(t, permit.Release(t.Context()))
	})
}
