package limit_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	limitscript "github.com/luatomic/luatomic/gen/limit"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/limit"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func left(t *testing.T, l *limit.Limiter, of *limit.Limit) int64 {
	t.Helper()
	d, err := l.Peek(t.Context(), of)
	require.NoError(t, err)
	return d.Remaining
}

// through is a client of a proxy.
func through(t *testing.T, proxy *luatomictest.LossyProxy) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	c := redis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestAReservationIsGivenBackOnce(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	l := limit.New(c, nil)
	of := l.Rate(luatomictest.Namespace(t), limit.Per(1000, 1000*time.Hour))
	reserve := func(n int64) *limit.Reservation {
		r, err := l.Reserve(ctx, n, of)
		require.NoError(t, err)
		return r
	}
	r := reserve(500)
	require.Zero(t, r.Delay())
	require.EqualValues(t, 500, left(t, l, of))
	other := reserve(100)
	require.NoError(t, r.Settle(ctx, 320))
	require.EqualValues(t, 580, left(t, l, of))
	require.NoError(t, r.Settle(ctx, 320), "the same again says the same")
	require.EqualValues(t, 580, left(t, l, of))
	require.ErrorIs(t, r.Settle(ctx, 300), limit.ErrSettled)
	require.ErrorIs(t, r.Cancel(ctx), limit.ErrSettled)
	require.EqualValues(t, 580, left(t, l, of))
	require.NoError(t, other.Settle(ctx, 150), "it cost more")
	require.EqualValues(t, 530, left(t, l, of))
	r = reserve(10)
	require.NoError(t, l.Reset(ctx, of))
	require.NoError(t, r.Cancel(ctx))
	r = reserve(10)
	_, err := l.Allow(ctx, 10, of)
	require.NoError(t, err)
	require.NoError(t, l.SetLevel(ctx, of, 5))
	require.NoError(t, r.Cancel(ctx))
	require.EqualValues(t, 5, left(t, l, of), "what was reserved before the level was set gives nothing back")
	require.ErrorIs(t, r.Settle(ctx, -1), lua.ErrOutOfRange)
}

// What is given back can be spent at once.
// reserved makes a reservation of n tokens at the scripts' own clock. cancel gives it back.
func (s *clocked) reserved(r *rated, receipt string, n int64) (wait time.Duration, cancel func()) {
	keys := []string{r.key + receipt, r.key}
	reply := s.run(&limitscript.ReserveScript, keys, append([]any{int64(time.Hour / time.Microsecond), 3_600_000},
		r.row(n)...)...).([]any)
	require.EqualValues(s.t, 1, reply[0])
	return time.Duration(reply[1].(int64)) * time.Microsecond, func() {
		settled := s.run(&limitscript.SettleScript, keys, "0", 3_600_000, r.rate, n*r.token, 0, r.most)
		require.EqualValues(s.t, 1, settled)
	}
}

// What a later reservation waits for has been counted on: it does not go back with an earlier one.
func TestACancelGivesNothingBackOfWhatALaterOneWaitsFor(t *testing.T) {
	t.Parallel()
	s := newClocked(t, luatomictest.Client(t))
	r := newRated(t, luatomictest.Namespace(t), limit.Per(1, time.Minute), time.Hour)
	wait, cancel := s.reserved(r, "a", 1)
	require.Zero(t, wait)
	wait, _ = s.reserved(r, "b", 1)
	require.Equal(t, time.Minute, wait)
	cancel()
	wait, _ = s.reserved(r, "c", 1)
	require.Equal(t, 2*time.Minute, wait, "not beside b")
}

// What an earlier cancel gave back is not given back again by that of another reservation, after it was spent.
func TestTwoCancelsGiveBackWhatHasNotFlowedBack(t *testing.T) {
	t.Parallel()
	s := newClocked(t, luatomictest.Client(t))
	r := newRated(t, luatomictest.Namespace(t), limit.Per(1, time.Second).Burst(10), time.Hour)
	_, cancel := s.reserved(r, "a", 5)
	_, second := s.reserved(r, "b", 5)
	cancel()
	s.now += 5_000_000
	passed, debt := s.allow(r, 10)
	require.True(t, passed)
	second()
	_, after := s.allow(r, 0)
	require.Equal(t, debt, after)
}

func TestAllCanBeReservedAgainAfterACancel(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	l := limit.New(c, &limit.Options{Tag: luatomictest.Namespace(t)})
	a, b := l.Rate("a", limit.Per(7, 1000*time.Hour)), l.Rate("b", limit.Per(9, 1000*time.Hour))
	for range 5 {
		r, err := l.Reserve(ctx, 7, a, b)
		require.NoError(t, err)
		_, err = l.Reserve(ctx, 1, a, b)
		require.ErrorIs(t, err, limit.ErrWouldWait)
		var wait *limit.WaitError
		require.ErrorAs(t, err, &wait)
		require.Equal(t, "a", wait.By)
		require.Greater(t, wait.Wait, 100*time.Hour)
		require.NoError(t, r.Cancel(ctx))
	}
	require.EqualValues(t, 7, left(t, l, a))
	require.EqualValues(t, 9, left(t, l, b))
}

func TestWaitersGoOnInOrderOfArrival(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	tag := luatomictest.Namespace(t)
	l := limit.New(c, &limit.Options{Tag: tag})
	a, b := l.Rate("a", limit.Per(20, time.Second).Burst(1)), l.Rate("b", limit.Per(100, time.Second).Burst(5))
	mine := "limitr:{" + tag + "}:*"
	last := int64(0)
	for i := range 12 { // by the receipts: what is left of a delay depends on when one looks
		_, err := l.Reserve(ctx, 1, a, b)
		require.NoError(t, err)
		latest := int64(0)
		for _, receipt := range c.Keys(ctx, mine).Val() {
			ends, _, _ := strings.Cut(c.Get(ctx, receipt).Val(), " ")
			latest = max(latest, lab.Must(strconv.ParseInt(ends, 10, 64)))
		}
		require.Greater(t, latest, last, "reservation %d", i)
		last = latest
	}
	var mu sync.Mutex
	var done []int
	var waiters sync.WaitGroup
	for i := range 5 {
		reserved := c.Keys(ctx, mine).Val()
		waiters.Go(func() {
			require.NoError(t, l.Wait(ctx, 1, a, b))
			mu.Lock()
			done = append(done, i)
			mu.Unlock()
		})
		luatomictest.Eventually(t, 20*time.Second, "it has arrived", func() bool {
			return len(c.Keys(ctx, mine).Val()) > len(reserved)
		})
	}
	waiters.Wait()
	require.Equal(t, []int{0, 1, 2, 3, 4}, done)
}

func TestAWaitBeyondWhatIsAllowedSpendsNothing(t *testing.T) {
	t.Parallel()
	ctx, c, name := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	slow := limit.Per(1, 30*time.Second)
	patient := limit.New(c, nil)
	_, err := patient.Allow(ctx, 1, patient.Rate(name, slow))
	require.NoError(t, err)
	before := c.Get(ctx, "limit:{"+name+"}").Val()
	refused := func(ctx context.Context, l *limit.Limiter) {
		t.Helper()
		err := l.Wait(ctx, 1, l.Rate(name, slow))
		require.ErrorIs(t, err, limit.ErrWouldWait)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		var wait *limit.WaitError
		require.ErrorAs(t, err, &wait)
		require.Equal(t, name, wait.By)
		require.InDelta(t, 30*time.Second, wait.Wait, float64(20*time.Second))
	}
	refused(ctx, limit.New(c, &limit.Options{MaxWait: time.Millisecond}))
	refused(ctx, limit.New(c, &limit.Options{MaxDebt: time.Millisecond}))
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	refused(short, patient)
	require.Equal(t, before, c.Get(ctx, "limit:{"+name+"}").Val())
}

// A waiter whose context ends gives its reservation back, although the context has ended.
func TestAWaiterThatLeavesGivesItsReservationBack(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	l := limit.New(c, nil)
	of := l.Rate(luatomictest.Namespace(t), limit.Per(1, 50*time.Second))
	_, err := l.Allow(t.Context(), 1, of)
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	waited := make(chan error, 1)
	go func() { waited <- l.Wait(ctx, 1, of) }()
	luatomictest.Eventually(t, 20*time.Second, "it waits", func() bool {
		d, err := l.Peek(t.Context(), of)
		return err == nil && d.ResetAfter > 50*time.Second
	})
	gone := errors.New("gone")
	cancel(gone)
	err = lab.Soon(t, 20*time.Second, "it leaves", waited)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, gone)
	luatomictest.Eventually(t, 20*time.Second, "its place is free", func() bool {
		d, err := l.Peek(t.Context(), of)
		return err == nil && d.ResetAfter <= 50*time.Second
	})
	require.ErrorIs(t, l.Wait(ctx, 1, of), gone, "nothing is sent under a context that has ended")
}

// A reserve whose reply is lost is sent again, and spends once; so is a settle. An allow is not sent again.
func TestALostReplySpendsOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	direct := luatomictest.Client(t)
	c := through(t, proxy)
	l, name := limit.New(c, nil), luatomictest.Namespace(t)
	require.NoError(t, lua.Preload(ctx, direct, &limitscript.AllowScript, &limitscript.ReserveScript,
		&limitscript.SettleScript))
	of := l.Rate(name, limit.Per(100, 100*time.Hour))
	lose := func(script *lua.Script) { proxy.Drop(1, lab.Sent(script)) }

	lose(&limitscript.ReserveScript)
	r, err := l.Reserve(ctx, 10, of)
	require.NoError(t, err)
	require.EqualValues(t, 90, left(t, l, of))
	lose(&limitscript.SettleScript)
	require.NoError(t, r.Settle(ctx, 4))
	require.EqualValues(t, 96, left(t, l, of))
	lose(&limitscript.ReserveScript)
	require.NoError(t, l.Wait(ctx, 6, of))
	require.EqualValues(t, 90, left(t, l, of))

	lose(&limitscript.AllowScript)
	_, err = l.Allow(ctx, 10, of)
	require.ErrorIs(t, err, lua.ErrOutcomeUnknown)
	require.EqualValues(t, 80, left(t, l, of), "it ran once")
	require.Equal(t, 1, proxy.Executed(lab.Sent(&limitscript.AllowScript)))
}

// A duplicate of a reserve arrives when its caller has given it back, or was refused: it spends nothing.
func TestALateDuplicateOfAReserveSpendsNothing(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		t.Run(fmt.Sprint("refused ", refused), func(t *testing.T) {
			t.Parallel()
			ctx, name := t.Context(), luatomictest.Namespace(t)
			c, held := lab.HoldUp(t, &limitscript.ReserveScript, 0)
			l, other := limit.New(c, nil), limit.New(luatomictest.Client(t), nil)
			rate := limit.Per(100, 100*time.Hour)
			if refused {
				require.NoError(t, other.SetLevel(ctx, other.Rate(name, rate), 0))
			}
			r, err := l.Reserve(ctx, 10, l.Rate(name, rate))
			if refused {
				require.ErrorIs(t, err, limit.ErrWouldWait)
				require.NoError(t, other.Reset(ctx, other.Rate(name, rate)))
			} else {
				require.NoError(t, err)
				require.NoError(t, r.Cancel(ctx))
			}
			held.Arrive(t)
			require.EqualValues(t, 100, left(t, other, other.Rate(name, rate)))
		})
	}
}
