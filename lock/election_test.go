package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// observing collects the leaders until the test ends.
func observing(t *testing.T, e *lock.Election) <-chan lock.Leader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	seen := make(chan lock.Leader, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for leader, err := range e.Observe(ctx) {
			if err == nil {
				seen <- leader
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return seen
}

// sees waits for the next change.
func sees(t *testing.T, seen <-chan lock.Leader, value string) lock.Leader {
	t.Helper()
	select {
	case leader := <-seen:
		require.Equal(t, value, leader.Value)
		return leader
	case <-time.After(30 * time.Second): // less than a lease
		require.Fail(t, "no change came", value)
		return lock.Leader{}
	}
}

func TestElectionCampaignObserveResign(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	e := l.Election(name)
	other := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Minute}).Election(name)
	seen := observing(t, other)
	require.Zero(t, sees(t, seen, ""))

	one, err := e.Campaign(ctx, "one")
	require.NoError(t, err)
	require.Equal(t, one.Fence(), sees(t, seen, "one").Fence)
	leader, err := other.Leader(ctx)
	require.NoError(t, err)
	require.Equal(t, "one", leader.Value)
	require.Equal(t, one.Fence(), leader.Fence)
	require.InDelta(t, time.Minute.Seconds(), leader.Remaining.Seconds(), 20)

	elected := make(chan *lock.Leadership, 1)
	go func() {
		two, err := other.Campaign(ctx, "two")
		if err != nil {
			t.Error(err)
		}
		elected <- two
	}()
	lab.WaitFor(t, l, name, 1)
	require.NoError(t, one.Extend(ctx))
	require.NoError(t, one.Proclaim(ctx, "still one"))
	require.Equal(t, one.Fence(), sees(t, seen, "still one").Fence)
	require.ErrorIs(t, one.Proclaim(ctx, strings.Repeat("x", 1025)), lua.ErrTooLarge)
	require.NoError(t, one.Resign(ctx))
	two := <-elected
	require.Greater(t, two.Fence(), one.Fence())
	require.Equal(t, two.Fence(), sees(t, seen, "two").Fence)
	require.ErrorIs(t, one.Proclaim(ctx, "again"), lock.ErrReleased)

	_, err = l.ForceRelease(ctx, name, two.Fence())
	require.NoError(t, err)
	require.ErrorIs(t, two.Proclaim(ctx, "two still"), lock.ErrLost)
	require.ErrorIs(t, two.Err(), lock.ErrLost)
	require.ErrorIs(t, two.Release(ctx), lock.ErrLost)
	require.Zero(t, sees(t, seen, ""))
	leader, err = e.Leader(ctx)
	require.NoError(t, err)
	require.Zero(t, leader)
	require.Empty(t, seen, "each change once")

	_, err = e.Campaign(ctx, strings.Repeat("x", 1025))
	require.ErrorIs(t, err, lua.ErrTooLarge)
	require.ErrorContains(t, err, "too large: value", "and not the field that the caller does not set")
}

func TestProclaimSaysThatTheLeadershipWasTakenAway(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	lead, err := l.Election(name).Campaign(ctx, "one")
	require.NoError(t, err)
	_, err = l.ForceRelease(ctx, name, lead.Fence())
	require.NoError(t, err)
	require.ErrorIs(t, lead.Proclaim(ctx, "one still"), lock.ErrRevoked)
	require.ErrorIs(t, lead.Err(), lock.ErrRevoked)
}

// As Extend says it. A loop that proclaims until ErrLost ends.
func TestProclaimAfterResignIsALoss(t *testing.T) {
	t.Parallel()
	l, name, _ := lab.NewLocker(t, nil)
	lead, err := l.Election(name).Campaign(t.Context(), "one")
	require.NoError(t, err)
	require.NoError(t, lead.Resign(t.Context()))
	err = lead.Proclaim(t.Context(), "one still")
	require.ErrorIs(t, err, lock.ErrLost)
	require.ErrorIs(t, err, lock.ErrReleased)
	require.ErrorContains(t, err, name)
}

func TestElectionLeadRunsAndResigns(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	e := l.Election(name)
	seen := observing(t, e)
	require.Zero(t, sees(t, seen, ""))
	boom := errors.New("boom")
	require.ErrorIs(t, e.Lead(ctx, "me", func(ctx context.Context, lead *lock.Leadership) error {
		require.NoError(t, ctx.Err())
		sees(t, seen, "me")
		return boom
	}), boom)
	require.Zero(t, sees(t, seen, ""))
}

// A leader that dies publishes nothing: the observers read when its lease is over.
func TestElectionObserverSeesACrash(t *testing.T) {
	t.Parallel()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: 6 * time.Second}) // long enough to be seen
	seen := observing(t, l.Election(name))
	require.Zero(t, sees(t, seen, ""))
	_, err := l.Election(name).Campaign(t.Context(), "dies")
	require.NoError(t, err)
	sees(t, seen, "dies")
	require.Zero(t, sees(t, seen, ""))
}

// A read that fails is repeated soon, however long the leases are: no message may come for it.
func TestElectionObserverReadsAgainSoonAfterAnError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Hour})
	key := "lock:{" + name + "}"
	require.NoError(t, c.Set(ctx, key, "no lock", 0).Err())
	failed := 0
	for leader, err := range l.Election(name).Observe(ctx) {
		if err == nil {
			require.Zero(t, leader)
			break
		}
		require.ErrorIs(t, err, lock.ErrNotALock)
		require.NoError(t, c.Del(ctx, key).Err())
		failed++
	}
	require.Equal(t, 1, failed)
	require.NoError(t, ctx.Err(), "it has read again")
}

// Where messages are lost, or the user may not subscribe, an observer reads when the lease
// that it knows of is over, and never more often than that.
func TestElectionObserverReadsOnceALease(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	name := luatomictest.Namespace(t)
	const ttl = 6 * time.Second // a machine that is short of time renews a shorter one too late
	l := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: ttl})
	lease, err := l.With(lock.Options{TTL: ttl, Note: "quiet"}).Try(t.Context(), name) // tells nobody
	require.NoError(t, err)
	lease.Keep(t.Context())
	seen := observing(t, lab.Locker(t, c, &lock.Options{TTL: ttl}).Election(name))
	sees(t, seen, "quiet")
	begun, before := time.Now(), proxy.Executed(lab.Sent(&lockscript.InfoScript))
	luatomictest.Eventually(t, 30*time.Second, "a lease is over", func() bool {
		return time.Since(begun) > ttl+time.Second
	})
	looks := proxy.Executed(lab.Sent(&lockscript.InfoScript)) - before
	require.Positive(t, looks)
	most := int(time.Since(begun)/(ttl*2/3)) + 1
	require.LessOrEqual(t, looks, most, "a lease that is renewed has two thirds left at least")
	require.Empty(t, seen)
	require.True(t, lab.Must(l.ForceRelease(t.Context(), name, 0)))
	require.Zero(t, sees(t, seen, ""))
}

// A subscription that is cut: the observer reads when it is back.
func TestElectionObserverReadsAgainAfterACutSubscription(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	name := luatomictest.Namespace(t)
	seen := observing(t, lab.Locker(t, c, &lock.Options{TTL: time.Hour}).Election(name))
	require.Zero(t, sees(t, seen, ""))
	lease, err := lab.Locker(t, luatomictest.Client(t), &lock.Options{
		TTL: time.Hour, Note: "quiet",
	}).Try(t.Context(), name)
	require.NoError(t, err)
	proxy.CutAll()
	sees(t, seen, "quiet")
	require.NoError(t, lease.Release(t.Context()))
}

// Observe with options out of range yields the error, and does not read without a pause.
func TestObserveWithBadOptions(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: -1})
	var got []error
	for _, err := range l.Election(name).Observe(ctx) {
		got = append(got, err)
	}
	require.Len(t, got, 1)
	require.ErrorIs(t, got[0], lua.ErrOutOfRange)
}

// A subscription that is lost before it is confirmed: the hub subscribes again, and the observer reads when it is
// there.
func TestElectionObserverWhoseSubscribeIsLostSeesChanges(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	defer c.Close()
	name := luatomictest.Namespace(t)
	proxy.Drop(1, luatomictest.Command("SUBSCRIBE"))
	seen := observing(t, lab.Locker(t, c, &lock.Options{TTL: time.Hour}).Election(name))
	require.Zero(t, sees(t, seen, ""))
	require.Positive(t, proxy.Stats().Lost)
	other := lab.Locker(t, luatomictest.Client(t), &lock.Options{TTL: time.Hour}).Election(name)
	leader, err := other.Campaign(t.Context(), "one")
	require.NoError(t, err)
	sees(t, seen, "one")
	require.NoError(t, leader.Resign(t.Context()))
}

// An observer learns at once that a leader lost its lock by force.
func TestObserversSeeALeaderThatWasForcedOut(t *testing.T) {
	t.Parallel()
	for how, force := range map[string]func(context.Context, *lock.Locker, string) error{
		"": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.ForceRelease(ctx, name, 0)
			return err
		},
		"thief": func(ctx context.Context, l *lock.Locker, name string) error {
			_, err := l.Steal(ctx, name)
			return err
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Hour, Note: "thief"})
			_, err := l.Election(name).Campaign(t.Context(), "leader")
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var seen []string
			var forced sync.WaitGroup
			for leader, err := range l.Election(name).Observe(ctx) {
				require.NoError(t, err)
				if seen = append(seen, leader.Value); leader.Value == how {
					break
				}
				forced.Go(func() { assert.NoError(t, force(ctx, l, name)) })
			}
			forced.Wait() // the observer may have seen the change before the call has its reply
			require.Equal(t, []string{"leader", how}, seen)
		})
	}
}

// The server answers no PUBLISH. The lease of the one that is elected runs already: it does not wait for the observers.
// On a busy machine a campaign may be slow for another reason, so one of many counts.
func TestALeaderBeginsBeforeItsObserversAreNotified(t *testing.T) {
	t.Parallel()
	l, name, c := lab.NewLocker(t, &lock.Options{TTL: time.Minute})
	hang, released := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(released) })
	c.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		if cmds[0].Name() == "publish" {
			hang <- struct{}{}
			<-released
		}
	}))
	for what, begin := range map[string]func(*lock.Election) error{
		"Campaign": func(e *lock.Election) error {
			_, err := e.Campaign(t.Context(), "v")
			return err
		},
		"Lead": func(e *lock.Election) error {
			begun, ended := make(chan struct{}), errors.New("ended")
			go func() {
				_ = e.Lead(t.Context(), "v", func(context.Context, *lock.Leadership) error {
					close(begun)
					return ended
				})
			}()
			lab.Soon(t, 20*time.Second, "the leader begins", begun)
			return nil
		},
	} {
		soon := false
		for i := 0; i < 20 && !soon; i++ {
			called := time.Now()
			require.NoError(t, begin(l.Election(name+what+strings.Repeat("x", i))))
			soon = time.Since(called) < 900*time.Millisecond // a caller that waits does so for a second
			lab.Soon(t, 20*time.Second, "the PUBLISH", hang)
		}
		require.True(t, soon, what)
	}
}
