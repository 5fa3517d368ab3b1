package keeper

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
)

var (
	errLost     = errors.New("lost")
	errMaxHold  = errors.Join(errLost, errors.New("held for MaxHold"))
	errReleased = errors.New("released")
	causes      = Causes{Lost: errLost, MaxHold: errMaxHold, Released: errReleased}
)

// fake is a holder whose server answers what the test says.
type fake struct {
	server string

	mu       sync.Mutex
	extended int
	extend   error
	release  error
	ended    []error
}

func (f *fake) Server(context.Context) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.server
}

func (f *fake) Extend(*lua.Batch, time.Duration) func() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.extended++
	err := f.extend
	return func() error { return err }
}

func (f *fake) Release(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.release
}

func (f *fake) Ended(why error, _ time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, why)
}

func (f *fake) answer(extend, release error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.extend, f.release = extend, release
}

func (f *fake) extensions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.extended
}

// held starts a lease that a keeper of its own keeps.
func held(t *testing.T, terms Terms) (*Entry, *fake, *Keeper) {
	t.Helper()
	k := NewKeeper(nil, causes)
	t.Cleanup(k.Close)
	f, l := &fake{server: t.Name()}, &Entry{}
	l.Begin(k, f, terms, End(time.Now(), terms.TTL))
	return l, f, k
}

func TestLeaseEndsByTheLocalClock(t *testing.T) {
	t.Parallel()
	l, f, k := held(t, Terms{Name: "x", TTL: time.Minute})
	require.NoError(t, l.Err())
	k.clocks = func() (mono, wall time.Time) {
		now := time.Now().Add(time.Minute)
		return now, now.Round(0)
	}
	require.EqualError(t, l.Err(), `lost: "x" was not extended in time`)
	require.ErrorIs(t, l.Extend(t.Context()), errLost)
	require.Zero(t, f.extensions(), "an extension of a lease that is over asks nobody")
}

func TestExtensionIsCountedFromItsRequest(t *testing.T) {
	t.Parallel()
	l, f, _ := held(t, Terms{TTL: time.Minute})
	before := time.Now()
	require.NoError(t, l.Extend(t.Context()))
	require.WithinRange(t, l.Deadline(), End(before, time.Minute), End(time.Now(), time.Minute))
	moved := l.Deadline()
	f.answer(errors.New("no answer"), nil)
	require.EqualError(t, l.Extend(t.Context()), "no answer")
	require.Equal(t, moved, l.Deadline())
	require.NoError(t, l.Err(), "it may still hold")
	f.answer(errLost, nil)
	require.ErrorIs(t, l.Extend(t.Context()), errLost)
	require.Equal(t, []error{errLost}, f.ended)
	f.answer(nil, nil)
	require.ErrorIs(t, l.Extend(t.Context()), errLost, "over stays over")
}

func TestMaxHoldBoundsTheExtensions(t *testing.T) {
	t.Parallel()
	l, _, k := held(t, Terms{TTL: 40 * time.Millisecond, MaxHold: 60 * time.Millisecond})
	now := l.begun
	k.clocks = func() (mono, wall time.Time) { return now, now.Round(0) }
	for l.Err() == nil {
		if err := l.Extend(t.Context()); err != nil {
			require.ErrorIs(t, err, errMaxHold)
		}
		require.LessOrEqual(t, l.Deadline().Sub(l.begun), 61*time.Millisecond)
		now = now.Add(time.Millisecond)
	}
	require.ErrorIs(t, l.Err(), errMaxHold)
}
