package lock_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

type lockCall func(ctx context.Context, l *lock.Locker, name string) error

// kinds are the calls of each kind of lock.
var kinds = map[string]struct {
	record, queue string
	calls         map[string]lockCall
}{
	"lock": {"lock:{%s}", "lockq:{%s}", map[string]lockCall{
		"Try": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.Try(ctx, name)
			return err
		},
		"Acquire": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.Acquire(ctx, name)
			return err
		},
		"Do":    func(ctx context.Context, l *lock.Locker, name string) error { return l.Do(ctx, name, nil) },
		"TryDo": func(ctx context.Context, l *lock.Locker, name string) error { return l.TryDo(ctx, name, nil) },
		"AcquireAll": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.AcquireAll(ctx, name)
			return err
		},
		"AcquireAll tagged": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.With(lock.Options{Tag: name}).AcquireAll(ctx, "a")
			return err
		},
		"Steal": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.Steal(ctx, name)
			return err
		},
		"ForceRelease": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.ForceRelease(ctx, name, 0)
			return err
		},
		"Info": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.Info(ctx, name)
			return err
		},
	}},
	"election": {"lock:{%s}", "lockq:{%s}", map[string]lockCall{
		"Campaign": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.Election(name).Campaign(ctx, "me")
			return err
		},
		"Lead": func(ctx context.Context, l *lock.Locker, name string) error {
			return l.Election(name).Lead(ctx, "me", nil)
		},
		"Observe": func(ctx context.Context, l *lock.Locker, name string) error {
			for _, err := range l.Election(name).Observe(ctx) {
				return err
			}
			return nil
		},
		"Leader": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.Election(name).Leader(ctx)
			return err
		},
	}},
	"semaphore": {"sem:{%s}", "semq:{%s}", map[string]lockCall{
		"Try": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.Semaphore(name, 2).Try(ctx, 1)
			return err
		},
		"Acquire": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.Semaphore(name, 2).Acquire(ctx, 1)
			return err
		},
		"Do": func(ctx context.Context, l *lock.Locker, name string) error {
			return l.Semaphore(name, 2).Do(ctx, 1, nil)
		},
		"Resize": func(ctx context.Context, l *lock.Locker, name string) error {
			return l.Semaphore(name, 2).Resize(ctx, 3)
		},
		"Revoke": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.Semaphore(name, 2).Revoke(ctx, "p.1:1")
			return err
		},
		"Info": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.Semaphore(name, 2).Info(ctx)
			return err
		},
	}},
	"read-write lock": {"rw:{%s}", "rwq:{%s}", map[string]lockCall{
		"Try": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.RW(name).Try(ctx)
			return err
		},
		"RTry": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.RW(name).RTry(ctx)
			return err
		},
		"Acquire": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.RW(name).Acquire(ctx)
			return err
		},
		"RDo": func(ctx context.Context, l *lock.Locker, name string) error { return l.RW(name).RDo(ctx, nil) },
		"Revoke": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.RW(name).Revoke(ctx, "p.1:1")
			return err
		},
		"Info": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.RW(name).Info(ctx)
			return err
		},
	}},
}

// Options out of range are the error of each call of each kind. Nothing is sent: there is no server.
func TestBadOptionsAreRefusedByEveryKind(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer c.Close()
	for what, opts := range map[string]lock.Options{
		"TTL":            {TTL: 999 * time.Microsecond},
		"TTL ":           {TTL: -1},
		"TTL  ":          {TTL: math.MaxInt64},
		"Claim":          {Claim: -1},
		"Afterlife":      {Afterlife: -1},
		"MaxHold":        {MaxHold: -1},
		"LockDelay":      {LockDelay: -1},
		"LockDelay ":     {LockDelay: math.MaxInt64},
		"Poll":           {Poll: -1},
		"Replicas":       {Replicas: -1},
		"ReplicaTimeout": {ReplicaTimeout: -1},
	} {
		l := lab.Locker(t, c, &opts)
		for kind, of := range kinds {
			for name, call := range of.calls {
				err := call(t.Context(), l, "x")
				require.ErrorIs(t, err, lua.ErrOutOfRange, "%s %s %s", what, kind, name)
				require.ErrorContains(t, err, what[:3], "%s %s", kind, name)
				require.NotErrorIs(t, err, lua.ErrNotExecuted, "%s %s %s", what, kind, name)
			}
		}
		for name, err := range lists(t.Context(), l) {
			require.ErrorIs(t, err, lua.ErrOutOfRange, "%s %s", what, name)
		}
	}
}

// lists has the first error of each list.
func lists(ctx context.Context, l *lock.Locker) map[string]error {
	return map[string]error{
		"List": firstError(l.List(ctx)), "ListSemaphores": firstError(l.ListSemaphores(ctx)),
		"ListRW": firstError(l.ListRW(ctx)),
	}
}

func firstError[T any](list iter.Seq2[T, error]) error {
	for _, err := range list {
		return err
	}
	return nil
}

// A prefix or a tag that no key can have is the error of each list: without it the server would look empty.
func TestListsRefuseAPrefixThatNoKeyHas(t *testing.T) {
	t.Parallel()
	for _, opts := range []*lock.Options{{Prefix: "{a}:"}, {Tag: "a}"}} {
		l := lab.Locker(t, luatomictest.Client(t), opts)
		for name, err := range lists(t.Context(), l) {
			require.ErrorIs(t, err, lua.ErrBadName, "%s %+v", name, opts)
		}
	}
}

// foreignValues are what other programs, or the first layout of a lock, may have under the key.
var foreignValues = []struct {
	redisType string
	value     any
}{
	{"string", "token"},
	{"string", "1732280000000000 0 P.1 1732280000000000 10000 0 - note"},
	{"zset", []redis.Z{{Score: 10, Member: "alice"}, {Score: 2e12, Member: "bob"}}},
	{"zset", []redis.Z{{Score: 0, Member: "alice"}}},
	{"zset", []redis.Z{{Score: 10, Member: "limit"}}},
	{"zset", []redis.Z{{Score: 3e15, Member: "limit"}}},
	{"zset", []redis.Z{{Score: 10, Member: "used"}}},
	{"zset", []redis.Z{{Score: 3e15, Member: "used"}, {Score: 1e15 + 1, Member: "limit"}}},
	{"hash", map[string]string{"field": "value"}},
}

func store(ctx context.Context, c *redis.Client, key string, value any) error {
	switch value := value.(type) {
	case []redis.Z:
		return c.ZAdd(ctx, key, value...).Err()
	case map[string]string:
		return c.HSet(ctx, key, value).Err()
	}
	return c.Set(ctx, key, value, 0).Err()
}

// read is what is stored under the key.
func read(ctx context.Context, c *redis.Client, key string) string {
	switch c.Type(ctx, key).Val() {
	case "string":
		return c.Get(ctx, key).String()
	case "zset":
		return c.ZRangeWithScores(ctx, key, 0, -1).String()
	}
	return c.HGetAll(ctx, key).String()
}

// A key that holds something else is named by the error of each call of each kind, and left as it is.
func TestForeignValuesAreLeftAsTheyAre(t *testing.T) {
	t.Parallel()
	for where, c := range map[string]*redis.Client{"server": luatomictest.Client(t),
		"memory": luatomictest.Embedded(t)} {
		for kind, of := range kinds {
			t.Run(where+"/"+kind, func(t *testing.T) {
				t.Parallel()
				ctx := t.Context()
				l, space := lab.Locker(t, c, nil), luatomictest.Namespace(t)
				for i, foreign := range foreignValues {
					name := fmt.Sprint(space, i)
					key := fmt.Sprintf(of.record, name)
					all := []string{key, fmt.Sprintf(of.record+":a", name)} // of a tag, too
					before := make(map[string]string)
					for _, key := range all {
						require.NoError(t, store(ctx, c, key, foreign.value))
						before[key] = read(ctx, c, key)
					}
					own := map[string]string{"lock": "string", "sem:": "zset", "rw:{": "zset"}[key[:4]]
					for what, call := range of.calls {
						ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
						err := call(ctx, l, name)
						cancel()
						if foreign.redisType == own {
							require.ErrorIs(t, err, lock.ErrNotALock, "%s %v", what, foreign.value)
							require.ErrorContains(t, err, "delete it", what)
							require.ErrorContains(t, err, name, what)
						} else {
							require.ErrorIs(t, err, lua.ErrWrongType, "%s %v", what, foreign.value)
							if where == "server" { // the imitation names no lines
								require.ErrorIs(t, err, lua.ErrNotExecuted, "%s %v", what, foreign.value)
							}
						}
					}
					for _, key := range all {
						require.Equal(t, before[key], read(ctx, c, key))
						require.EqualValues(t, -1, c.PTTL(ctx, key).Val(), "it does not expire")
					}
					require.Zero(t, c.Exists(ctx, fmt.Sprintf(of.queue, name)).Val())
				}
			})
		}
	}
}

// The key of a lease comes to hold something else: its calls name it, and leave it as it is.
func TestLeaseWhoseKeyHoldsSomethingElse(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, space, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	lease, err := l.Try(ctx, space)
	require.NoError(t, err)
	leads, err := l.Election(space+"e").Campaign(ctx, "me")
	require.NoError(t, err)
	permit, err := l.Semaphore(space, 1).Try(ctx, 1)
	require.NoError(t, err)
	other := []redis.Z{{Score: 10, Member: "alice"}}
	for key, value := range map[string]any{lease.Key(): "token", leads.Key(): "token", permit.Key(): other} {
		require.NoError(t, c.Del(ctx, key).Err())
		require.NoError(t, store(ctx, c, key, value))
	}
	for what, err := range map[string]error{
		"extend": lease.Extend(ctx), "release": lease.Release(ctx), "proclaim": leads.Proclaim(ctx, "other"),
		"resign": leads.Resign(ctx), "release of a permit": permit.Release(ctx),
	} {
		require.ErrorIs(t, err, lock.ErrNotALock, what)
		require.ErrorContains(t, err, "delete it", what)
	}
	require.ErrorIs(t, permit.Extend(ctx), lock.ErrLost)
	require.Equal(t, "token", c.Get(ctx, lease.Key()).Val())
	require.Equal(t, "token", c.Get(ctx, leads.Key()).Val())
	require.Equal(t, other, c.ZRangeWithScores(ctx, permit.Key(), 0, -1).Val())
}

// Leases of more than one Locker are released together, each at its own server.
func TestLeasesOfTwoLockersAreReleasedAtTheirOwn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	here, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	there := lab.Locker(t, luatomictest.StartServer(t).Client(), &lock.Options{TTL: time.Minute})
	one, err := here.Try(ctx, name)
	require.NoError(t, err)
	two, err := there.Try(ctx, name)
	require.NoError(t, err)
	require.NoError(t, lock.Leases{one, two}.Release(ctx))
	for _, l := range []*lock.Locker{here, there} {
		info, err := l.Info(ctx, name)
		require.NoError(t, err)
		require.False(t, info.Held)
	}
}

// One key that holds something else hides no lock from a list.
func TestListsPassOverForeignValues(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, prefix := luatomictest.Client(t), luatomictest.Namespace(t)+":"
	l := lab.Locker(t, c, &lock.Options{Prefix: prefix, TTL: time.Minute})
	_, err := l.Try(ctx, "mine")
	require.NoError(t, err)
	_, err = l.Semaphore("mine", 1).Try(ctx, 1)
	require.NoError(t, err)
	for i := range 8 {
		require.NoError(t, store(ctx, c, fmt.Sprintf("%slock:{other%d}", prefix, i), "token"))
		require.NoError(t, store(ctx, c, fmt.Sprintf("%ssem:{other%d}", prefix, i),
			[]redis.Z{{Score: 1, Member: "alice"}}))
	}
	locks := named(t, l.List(ctx), func(i lock.Info) string { return i.Name })
	require.Len(t, locks, 1)
	require.Contains(t, locks, "mine")
	permits := named(t, l.ListSemaphores(ctx), func(i lock.SemaphoreInfo) string { return i.Name })
	require.Len(t, permits, 1)
	require.Contains(t, permits, "mine")
}

// A key of another type in the place of the queue fails an acquire that would wait. It changes nothing for the holder.
func TestAForeignQueueKeepsNoLockClosed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	lease, err := l.Try(ctx, name)
	require.NoError(t, err)
	require.NoError(t, c.HSet(ctx, "lockq:{"+name+"}", "a", "b").Err())
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err = l.Acquire(ctx, name)
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.NoError(t, lease.Release(ctx))
	again, err := l.Try(ctx, name)
	require.NoError(t, err)
	require.NoError(t, again.Release(ctx))
}
