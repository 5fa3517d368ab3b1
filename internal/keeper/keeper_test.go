package keeper

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// renews reports whether a goroutine renews leases of the server, and how many.
func renews(k *Keeper, name string) (running bool, leases int) {
	renewals.mu.Lock()
	defer renewals.mu.Unlock()
	s := renewals.servers[serverKey{k.id, name}]
	if s == nil {
		return false, 0
	}
	return true, len(s.due)
}

func TestKeeperRunsWhileThereIsALease(t *testing.T) {
	t.Parallel()
	l, f, k := held(t, Terms{TTL: 9 * time.Second})
	begun := time.Now()
	kept := l.Keep(t.Context())
	for f.extensions() < 2 && time.Since(begun) < time.Minute {
		time.Sleep(10 * time.Millisecond)
	}
	require.NoError(t, kept.Err())
	require.GreaterOrEqual(t, time.Since(begun), 5900*time.Millisecond, "three times in its TTL")
	running, leases := renews(k, f.server)
	require.True(t, running)
	require.Equal(t, 1, leases)
	require.NoError(t, l.Release(t.Context()))
	require.Eventually(t, func() bool {
		running, leases = renews(k, f.server)
		return !running && leases == 0
	}, 10*time.Second, 10*time.Millisecond)
}

func TestRenewAllRenewsNow(t *testing.T) {
	t.Parallel()
	l, f, k := held(t, Terms{TTL: time.Hour})
	kept := l.Keep(t.Context())
	f.answer(errLost, nil)
	k.RenewAll()
	select {
	case <-kept.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the loss was not noticed")
	}
}

func TestEndWhereEndsWhatMatches(t *testing.T) {
	t.Parallel()
	l, f, k := held(t, Terms{TTL: time.Minute})
	g, other := &fake{}, &Entry{}
	other.Begin(k, g, Terms{TTL: time.Minute}, time.Now().Add(time.Minute))
	one, two := l.Keep(t.Context()), other.Keep(t.Context())
	k.EndWhere(errLost, func(h Holder) bool { return h == Holder(f) })
	require.Error(t, one.Err())
	require.NoError(t, two.Err())
}

// A lease that ends before Keep has given it to the keeper is not kept for ever, and takes no other out.
func TestLeaseThatEndsDuringKeepIsNotKept(t *testing.T) {
	t.Parallel()
	l, f, k := held(t, Terms{TTL: time.Minute})
	other := &Entry{}
	other.Begin(k, &fake{server: f.server}, Terms{TTL: time.Minute}, time.Now().Add(time.Minute))
	other.Keep(t.Context())
	ctx, cancel := context.WithCancelCause(t.Context())
	c := &keptContext{Context: ctx, cancel: cancel, lease: l, timer: time.NewTimer(time.Hour)}
	l.kept = c
	l.End(errReleased)
	renewals.add(c, time.Now())
	_, leases := renews(k, f.server)
	require.Equal(t, 1, leases)
}

func TestCloseEndsRenewalAndNoLease(t *testing.T) {
	t.Parallel()
	l, f, k := held(t, Terms{TTL: 4 * time.Second})
	kept := l.Keep(t.Context())
	k.Close()
	before := f.extensions()
	require.NoError(t, kept.Err())
	<-kept.Done()
	require.Equal(t, before, f.extensions())
	require.ErrorIs(t, l.Err(), errLost)
}

// Renew renews one lease now, and no other. One that is not kept is left alone.
func TestRenewRenewsOneLeaseNow(t *testing.T) {
	t.Parallel()
	l, f, k := held(t, Terms{TTL: time.Hour})
	g, other := &fake{server: f.server}, &Entry{}
	other.Begin(k, g, Terms{TTL: time.Hour}, time.Now().Add(time.Hour))
	other.Renew()
	l.Keep(t.Context())
	other.Keep(t.Context())
	l.Renew()
	require.Eventually(t, func() bool { return f.extensions() == 1 }, 10*time.Second, time.Millisecond)
	require.Zero(t, g.extensions())
	require.NoError(t, l.Release(t.Context()))
	l.Renew()
	require.NoError(t, other.Release(t.Context()))
}

// A lease that an extension makes shorter is renewed before it ends, also where the answer of a renewal that was sent
// before comes after that.
func TestAShorterLeaseIsRenewedInTime(t *testing.T) {
	t.Parallel()
	const short = 10 * time.Minute
	l, f, _ := held(t, Terms{TTL: time.Hour})
	l.Keep(t.Context())
	due := func() time.Duration {
		renewals.mu.Lock()
		defer renewals.mu.Unlock()
		return time.Until(l.kept.next)
	}
	require.Greater(t, due(), short/2)
	require.NoError(t, l.Extended(time.Now(), short))
	require.LessOrEqual(t, due(), short/3)
	l.kept.renewed(time.Hour)
	require.LessOrEqual(t, due(), short/3)
	require.NoError(t, l.Extended(time.Now(), time.Hour))
	require.LessOrEqual(t, due(), short/3, "it is early, and no harm")
	l.kept.renewed(time.Hour)
	require.Greater(t, due(), short/2)
	require.Zero(t, f.extensions())
	require.NoError(t, l.Extended(time.Now(), 9*time.Second))
	require.Eventually(t, func() bool { return f.extensions() == 1 }, 9*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return due() > short/2 }, 9*time.Second, time.Millisecond)
	require.NoError(t, l.Err())
}

// Where MaxHold ends a lease, its last extension brings no renewal forward: it would extend nothing.
func TestTheLastExtensionIsNotRenewed(t *testing.T) {
	t.Parallel()
	l, f, _ := held(t, Terms{TTL: time.Hour, MaxHold: time.Minute})
	l.Keep(t.Context())
	require.NoError(t, l.Extend(t.Context()))
	require.Equal(t, 1, f.extensions())
	renewals.mu.Lock()
	defer renewals.mu.Unlock()
	require.Greater(t, time.Until(l.kept.next), 10*time.Minute)
}
