package keeper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
)

// hung is a holder whose server answers when the test says.
type hung struct {
	fake
	answer chan error
}

func (h *hung) Extend(b *lua.Batch, ttl time.Duration) func() error {
	_ = h.fake.Extend(b, ttl)
	return func() error { return <-h.answer }
}

// A server that hangs delays no renewal at another one.
func TestSlowServerDelaysNoOther(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make test-all runs it")
	}
	t.Parallel()
	l, _, k := held(t, Terms{TTL: 6 * time.Second})
	kept := l.Keep(t.Context())
	h := &hung{fake: fake{server: t.Name() + " that hangs"}, answer: make(chan error)}
	defer close(h.answer)
	other := &Entry{}
	other.Begin(k, h, Terms{Name: "x", TTL: 6 * time.Second}, time.Now().Add(6*time.Second))
	lost := other.Keep(t.Context())
	time.Sleep(8 * time.Second)
	require.NoError(t, kept.Err())
	select {
	case <-lost.Done(): // its timer has fired: nothing else runs at that server, and nobody has asked for Err
	case <-time.After(20 * time.Second):
		t.Fatal("the lease at the server that hangs has not ended")
	}
	require.ErrorIs(t, context.Cause(lost), errLost)
}

// A round trip without an answer is left behind: the lease is renewed in another one, and the late verdict counts.
func TestRoundTripThatTakesTooLongIsLeftBehind(t *testing.T) {
	t.Parallel()
	k := NewKeeper(nil, causes)
	t.Cleanup(k.Close)
	h := &hung{fake: fake{server: t.Name()}, answer: make(chan error, 10)}
	l := &Entry{}
	l.Begin(k, h, Terms{TTL: 9 * time.Second}, time.Now().Add(9*time.Second))
	kept := l.Keep(t.Context())
	require.Eventually(t, func() bool { return h.extensions() >= 2 }, 20*time.Second, 5*time.Millisecond,
		"a second attempt while the first one hangs")
	for range cap(h.answer) { // of further attempts on a busy machine, too
		h.answer <- errLost
	}
	<-kept.Done()
	require.ErrorIs(t, context.Cause(kept), errLost)
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.ended) == 1 && errors.Is(h.ended[0], errLost)
	}, 5*time.Second, time.Millisecond, "the holder learns of it, once")
}

// The wall clock ends a lease, too: the monotonic clock stands still while the machine is suspended.
func TestWallClockEndsALease(t *testing.T) {
	t.Parallel()
	l, f, k := held(t, Terms{TTL: time.Hour})
	kept := l.Keep(t.Context())
	started := time.Now()
	asleep := make(chan struct{})
	setWall(k, l, asleep)
	require.NoError(t, l.Err())
	close(asleep)
	endsLost(t, kept)
	require.Less(t, time.Since(started), 5*time.Second)
	require.Zero(t, f.extensions(), "to learn of the end takes no network")
	require.Positive(t, left(started.Add(time.Hour), started, started.Round(0)))
	require.Negative(t, left(started, started.Add(time.Second), started.Round(0)), "by the monotonic clock")
	require.Negative(t, left(started, started, started.Round(0).Add(time.Second)), "by the wall clock")
}

func endsLost(t *testing.T, kept context.Context) {
	t.Helper()
	select {
	case <-kept.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the context lives on")
	}
	require.ErrorIs(t, context.Cause(kept), errLost)
}

// setWall has the wall clock of a keeper say two hours more once asleep is closed.
func setWall(k *Keeper, l *Entry, asleep <-chan struct{}) {
	renewals.mu.Lock()
	defer renewals.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	k.clocks = func() (mono, wall time.Time) {
		now := time.Now()
		select {
		case <-asleep:
			return now, now.Round(0).Add(2 * time.Hour)
		default:
			return now, now.Round(0)
		}
	}
}

// The wall clock ends a lease while round trips hang, too: after a suspension the connections are dead.
func TestWallClockEndsALeaseOfAServerThatHangs(t *testing.T) {
	t.Parallel()
	k := NewKeeper(nil, causes)
	t.Cleanup(k.Close)
	h := &hung{fake: fake{server: t.Name()}, answer: make(chan error)}
	defer close(h.answer)
	l, asleep := &Entry{}, make(chan struct{})
	l.Begin(k, h, Terms{Name: "x", TTL: time.Hour}, time.Now().Add(time.Hour))
	setWall(k, l, asleep)
	kept := l.Keep(t.Context())
	l.Renew()
	require.Eventually(t, func() bool { return h.extensions() > 0 }, 20*time.Second, time.Millisecond)
	close(asleep)
	endsLost(t, kept)
}

// grouped is a holder that one call extends with the others of its group.
type grouped struct {
	fake
	group string
	calls *[]int
	lease Entry
}

func (g *grouped) Group() any { return g.group }

func (g *grouped) ExtendAll(_ *lua.Batch, hs []Together, ttl time.Duration) func(int) error {
	*g.calls = append(*g.calls, len(hs))
	sent := time.Now()
	return func(i int) error {
		h := hs[i].(*grouped)
		if i == 0 {
			return errLost
		}
		return h.lease.Extended(sent, ttl)
	}
}

// One call renews all leases of a group that are due, and each has its own outcome.
func TestOneCallRenewsAGroup(t *testing.T) {
	t.Parallel()
	k := NewKeeper(nil, causes)
	t.Cleanup(k.Close)
	var calls []int
	soon := time.Now().Add(50 * time.Minute)
	gs, kept := make([]*grouped, 100), make(map[*Entry]context.Context)
	for i := range gs {
		g := &grouped{fake: fake{server: t.Name()}, group: "one", calls: &calls}
		gs[i] = g
		g.lease.Begin(k, g, Terms{TTL: time.Hour}, soon)
		kept[&g.lease] = g.lease.Keep(t.Context())
	}
	renewals.mu.Lock()
	due := renewals.of(k)
	renewals.mu.Unlock()
	renew(due)
	require.Equal(t, []int{100}, calls)
	require.ErrorIs(t, context.Cause(kept[due[0].lease]), errLost)
	for _, c := range due[1:] {
		require.NoError(t, kept[c.lease].Err())
		require.True(t, c.lease.Deadline().After(soon))
	}
}

// A lease whose slot has moved is renewed with those of its new server.
func TestLeaseMovesToAnotherServer(t *testing.T) {
	t.Parallel()
	l, f, k := held(t, Terms{TTL: 6 * time.Second})
	kept := l.Keep(t.Context())
	f.mu.Lock()
	f.server += " after the move"
	moved := f.server
	f.mu.Unlock()
	require.Eventually(t, func() bool { _, n := renews(k, moved); return n == 1 }, 10*time.Second, 5*time.Millisecond)
	require.Eventually(t, func() bool { return f.extensions() > 2 }, 30*time.Second, 5*time.Millisecond)
	require.NoError(t, kept.Err())
}

// A lease that a check has found over stays over: an extension that is answered after that brings none back.
func TestAnExtensionThatIsAnsweredLateBringsNoLeaseBack(t *testing.T) {
	t.Parallel()
	k := NewKeeper(nil, causes)
	t.Cleanup(k.Close)
	h, l := &hung{answer: make(chan error)}, &Entry{}
	l.Begin(k, h, Terms{Name: "x", TTL: time.Minute}, time.Now().Add(time.Minute))
	extended := make(chan error, 1)
	go func() { extended <- l.Extend(t.Context()) }()
	require.Eventually(t, func() bool { return h.extensions() == 1 }, 20*time.Second, time.Millisecond)
	l.mu.Lock()
	l.deadline = time.Now()
	l.mu.Unlock()
	require.ErrorIs(t, l.Err(), errLost)
	h.answer <- nil
	require.ErrorIs(t, <-extended, errLost)
	require.ErrorIs(t, l.Err(), errLost)
	require.Len(t, h.ended, 1, "the loss is reported")
}
