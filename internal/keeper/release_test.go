package keeper

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

func TestReleaseThatFailsCanBeTriedAgain(t *testing.T) {
	t.Parallel()
	l, f, _ := held(t, Terms{Name: "x", TTL: time.Minute})
	broken := errors.New("broken")
	f.answer(nil, broken)
	err := l.Release(t.Context())
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, `luatomic: release "x": broken`)
	require.Empty(t, f.ended, "nobody confirmed the release")
	f.answer(nil, nil)
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, l.Release(t.Context()))
	require.Equal(t, []error{errReleased}, f.ended)
	require.ErrorIs(t, l.Err(), errReleased)
}

// A Release without an answer says what is left to do.
func TestReleaseWithoutAnAnswerNamesItsCure(t *testing.T) {
	t.Parallel()
	l, f, _ := held(t, Terms{Name: "x", TTL: time.Minute})
	f.answer(nil, fmt.Errorf("%w: i/o timeout", lua.ErrOutcomeUnknown))
	require.Regexp(t, `i/o timeout; call Release again, or the lease ends in 59\.\d+s$`, l.Release(t.Context()).Error())
}

// resender answers a release to a repeat: the first attempt has released the lock.
type resender struct{ fake }

func (r *resender) Release(ctx context.Context) error {
	ctx.Value(send.ResentKey{}).(send.ResentNoter).NoteResent()
	return r.fake.Release(ctx)
}

func TestRepeatedReleaseThatFindsNothingWasItsOwn(t *testing.T) {
	t.Parallel()
	for _, noted := range []bool{false, true} {
		l, f, k := held(t, Terms{TTL: time.Minute})
		f.answer(nil, errLost)
		if noted {
			r := &resender{}
			r.answer(nil, errLost)
			l.Begin(k, r, Terms{TTL: time.Minute}, time.Now().Add(time.Minute))
			require.NoError(t, l.Release(t.Context()))
			continue
		}
		require.ErrorIs(t, l.Release(t.Context()), errLost)
	}
}

// A release that finds nothing was preceded by one of the same lease that may have been executed.
func TestReleaseThatIsTriedAgainFindsItsOwn(t *testing.T) {
	t.Parallel()
	for what, first := range map[string]error{
		"the repeat of the second finds what the second did": errors.New("not executed"),
		"the second finds what the first did":                lua.ErrOutcomeUnknown,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, _, k := held(t, Terms{})
			l, r := &Entry{}, &resender{}
			if errors.Is(first, lua.ErrOutcomeUnknown) {
				l.Begin(k, &r.fake, Terms{TTL: time.Minute}, time.Now().Add(time.Minute))
			} else {
				l.Begin(k, r, Terms{TTL: time.Minute}, time.Now().Add(time.Minute))
			}
			r.answer(nil, first)
			require.ErrorIs(t, l.Release(t.Context()), first)
			r.answer(nil, errLost)
			require.NoError(t, l.Release(t.Context()))
		})
	}
}

func TestReleaseWorksUnderAContextThatHasEnded(t *testing.T) {
	t.Parallel()
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	cancel()
	d := Detach(ctx)
	require.NoError(t, d.Err())
	require.Nil(t, d.Done())
	_, bounded := d.Deadline()
	require.False(t, bounded)
	require.Equal(t, "value", d.Value(key{}))
}

func TestRunReleasesWhateverHappens(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	l, f, _ := held(t, Terms{TTL: time.Minute})
	require.ErrorIs(t, l.Run(t.Context(), func(ctx context.Context) error {
		require.NoError(t, ctx.Err())
		return failed
	}), failed)
	require.Equal(t, []error{errReleased}, f.ended)

	l, f, _ = held(t, Terms{TTL: time.Minute})
	require.Panics(t, func() { _ = l.Run(t.Context(), func(context.Context) error { panic("f") }) })
	require.Equal(t, []error{errReleased}, f.ended)

	l, f, _ = held(t, Terms{TTL: time.Minute})
	f.answer(nil, lua.ErrOutcomeUnknown)
	require.ErrorIs(t, l.Run(t.Context(), func(context.Context) error { return nil }), lua.ErrOutcomeUnknown)

	l, _, _ = held(t, Terms{TTL: time.Minute})
	require.NoError(t, l.Run(t.Context(), func(ctx context.Context) error { return l.Release(ctx) }))
}

// A release that fails after a loss is in the error beside it: the server may have the lease still, as after MaxHold.
func TestRunReportsAReleaseThatFailsAfterALoss(t *testing.T) {
	t.Parallel()
	l, f, _ := held(t, Terms{Name: "x", TTL: time.Minute, MaxHold: time.Millisecond})
	f.answer(nil, lua.ErrOutcomeUnknown)
	err := l.Run(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
	require.ErrorIs(t, err, errMaxHold)
	require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
	require.ErrorContains(t, err, "call Release again")
}

// slow is a holder whose releases answer when the test says so.
type slow struct {
	fake
	begun, answers chan error
}

func (s *slow) Release(context.Context) error {
	s.begun <- nil
	return <-s.answers
}

// A Release beside another one that fails does not say that the lease was given back.
func TestReleasesAtOnceHaveOneOutcome(t *testing.T) {
	t.Parallel()
	_, _, k := held(t, Terms{})
	for _, answer := range []error{nil, errors.New("broken")} {
		l, s := &Entry{}, &slow{begun: make(chan error), answers: make(chan error)}
		l.Begin(k, s, Terms{TTL: time.Minute}, time.Now().Add(time.Minute))
		outcomes := make(chan error)
		release := func() { outcomes <- l.Release(t.Context()) }
		go release()
		<-s.begun
		go release()
		select {
		case err := <-outcomes:
			require.Fail(t, "a Release returns before the server has answered", "%v", err)
		case <-time.After(50 * time.Millisecond):
		}
		s.answers <- answer
		require.ErrorIs(t, <-outcomes, answer)
		require.ErrorIs(t, <-outcomes, answer)
	}
}

// A lease whose Release failed is over for its holder: an extension would keep others out for nobody.
func TestNoExtensionAfterARelease(t *testing.T) {
	t.Parallel()
	l, f, _ := held(t, Terms{Name: "x", TTL: time.Minute})
	f.answer(nil, errors.New("broken"))
	require.Error(t, l.Release(t.Context()))
	err := l.Extend(t.Context())
	require.ErrorIs(t, err, errLost)
	require.ErrorIs(t, err, errReleased)
	require.Zero(t, f.extensions())
}
