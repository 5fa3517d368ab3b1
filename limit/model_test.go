package limit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	limitscript "github.com/luatomic/luatomic/gen/limit"
	"github.com/luatomic/luatomic/limit"
	"github.com/luatomic/luatomic/luatomictest"
)

// spent is what a limit has passed: n tokens at a time.
type spent struct {
	at, n int64
}

// booked is a reservation of the model.
type booked struct {
	receipt string
	n       int64
	in      []int // limits
	at      []int // indices in passed of each
	settled bool
	used    int64
}

// world is some limits of one slot beside a model in integers. It knows what each limit has passed, and the debt of
// each where no reservation was given back.
type world struct {
	*clocked
	limits []*rated
	debts  []int64 // the model's, in parts
	passed [][]spent
	books  []*booked
	n      int
}

func (w *world) flow(us int64) {
	w.now += us
	for i, l := range w.limits {
		if us > w.debts[i]/l.rate {
			w.debts[i] = 0
		} else {
			w.debts[i] = max(w.debts[i]-us*l.rate, 0)
		}
	}
}

// rows are those of some limits, for n tokens.
func (w *world) rows(in []int, n int64) (keys []string, args []any) {
	for _, i := range in {
		keys, args = append(keys, w.limits[i].key), append(args, w.limits[i].row(n)...)
	}
	return keys, args
}

func (w *world) fits(in []int, n int64) bool {
	for _, i := range in {
		if w.debts[i]+n*w.limits[i].token > w.limits[i].room {
			return false
		}
	}
	return true
}

func (w *world) spend(in []int, n int64) {
	for _, i := range in {
		w.debts[i] += n * w.limits[i].token
		w.passed[i] = append(w.passed[i], spent{w.now, n})
	}
}

// allowRows makes one call of many rows, each of one limit: they are as calls one after another.
func (w *world) allowRows(in []int, n []int64) {
	var keys []string
	var args, want []any
	for j, i := range in {
		l := w.limits[i]
		keys, args = append(keys, l.key), append(args, l.row(n[j])...)
		if w.fits([]int{i}, n[j]) {
			w.spend([]int{i}, n[j])
			want = append(want, w.debts[i])
		} else {
			want = append(want, -1-w.debts[i])
		}
	}
	reply := w.run(&limitscript.AllowScript, keys, args...)
	if len(in) == 1 {
		reply = []any{reply}
	}
	require.Equal(w.t, want, reply)
}

func (w *world) allowAll(in []int, n int64) {
	keys, args := w.rows(in, n)
	want := int64(0)
	if w.fits(in, n) {
		w.spend(in, n)
		want = 1
	}
	reply := w.run(&limitscript.AllowAllScript, keys, args...).([]any)
	require.Equal(w.t, want, reply[0])
	w.sees(in, reply[1])
	w.sees(in, w.run(&limitscript.PeekScript, keys, args...))
}

func (w *world) sees(in []int, debts any) {
	var want []any
	for _, i := range in {
		want = append(want, w.debts[i])
	}
	require.Equal(w.t, want, debts)
}

func (w *world) reserve(in []int, n, longest int64) {
	var wait int64
	for _, i := range in {
		l := w.limits[i]
		if over := w.debts[i] + n*l.token - l.room; over > 0 {
			wait = max(wait, (over+l.rate-1)/l.rate)
		}
	}
	w.n++
	b := &booked{receipt: fmt.Sprint(w.limits[0].key, "r", w.n), n: n, in: in}
	keys, args := w.rows(in, n)
	call := func() []any {
		return w.run(&limitscript.ReserveScript, append([]string{b.receipt}, keys...),
			append([]any{longest, 3_600_000}, args...)...).([]any)
	}
	reply := call()
	require.Equal(w.t, wait, reply[1])
	if wait > longest {
		require.EqualValues(w.t, 0, reply[0])
		w.sees(in, w.run(&limitscript.PeekScript, keys, args...))
		return
	}
	require.EqualValues(w.t, 1, reply[0])
	for _, i := range in {
		w.debts[i] = max(w.debts[i], wait*w.limits[i].rate) + n*w.limits[i].token
		b.at = append(b.at, len(w.passed[i]))
		w.passed[i] = append(w.passed[i], spent{w.now + wait, n})
	}
	require.Equal(w.t, reply[:2], call()[:2], "a repeat")
	w.sees(in, w.run(&limitscript.PeekScript, keys, args...))
	w.books = append(w.books, b)
}

// settle compares nothing with the model, which does not know how much has flowed back since: it takes the debts from
// the server. What was passed says whether that was too much.
func (w *world) settle(b *booked, used int64) {
	keys, args := []string{b.receipt}, []any{fmt.Sprint(used), 3_600_000}
	for _, i := range b.in {
		l := w.limits[i]
		keys = append(keys, l.key)
		args = append(args, l.rate, max(b.n-used, 0)*l.token, max(used-b.n, 0)*l.token, l.most)
	}
	want := int64(1)
	if b.settled && used != b.used {
		want = 2
	}
	for range 2 {
		require.EqualValues(w.t, want, w.run(&limitscript.SettleScript, keys, args...))
		_, peek := w.rows(b.in, 0)
		debts := w.run(&limitscript.PeekScript, keys[1:], peek...).([]any)
		for j, i := range b.in {
			now, l := debts[j].(int64), w.limits[i]
			if b.settled {
				require.Equal(w.t, w.debts[i], now, "settled once")
				continue
			}
			require.GreaterOrEqual(w.t, now, max(w.debts[i]-max(b.n-used, 0)*l.token, 0))
			require.LessOrEqual(w.t, now, min(w.debts[i]+max(used-b.n, 0)*l.token, l.most))
			w.debts[i] = now
			w.passed[i][b.at[j]].n = min(used, b.n) // what is used beyond it was used already
		}
		if !b.settled {
			b.settled, b.used = true, used
		}
	}
}

// checkWindows expects of each window that no more was passed than the burst and what flows back in it.
func (w *world) checkWindows() {
	for i, l := range w.limits {
		for _, from := range w.passed[i] {
			for _, to := range w.passed[i] {
				if to.at < from.at {
					continue
				}
				var sum int64
				for _, s := range w.passed[i] {
					if from.at <= s.at && s.at <= to.at {
						sum += s.n
					}
				}
				most := l.room + (to.at-from.at)*l.rate
				require.LessOrEqual(w.t, sum*l.token, most, "%v: from %d to %d", l, from.at, to.at)
			}
		}
	}
}

// Random calls at a clock of their own: each reply is that of the integers of the model, and whatever is reserved,
// given back and refused, no window of a limit passes more than its burst and what flows back in it.
func TestModelOfLimits(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	name := luatomictest.Namespace(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		const maxDebt = 2 * time.Second
		s := &clocked{t: rt, ctx: t, c: c, now: start}
		w := &world{clocked: s, debts: make([]int64, 3), passed: make([][]spent, 3)}
		for i := range 3 {
			r := limit.Per(rapid.Int64Range(1, 30).Draw(rt, "n"), time.Duration(rapid.SampledFrom([]int{1, 7, 1000}).
				Draw(rt, "ms"))*time.Millisecond).Burst(rapid.Int64Range(1, 20).Draw(rt, "burst"))
			w.limits = append(w.limits, newRated(rt, fmt.Sprintf("limit:{%s}:%d:%d", name, round, i), r, maxDebt))
		}
		some := func() (in []int) {
			for i := range 3 {
				if rapid.Bool().Draw(rt, "in") {
					in = append(in, i)
				}
			}
			if in == nil {
				in = []int{0}
			}
			return in
		}
		tokens := func(in []int) int64 {
			n := rapid.Int64Range(0, 20).Draw(rt, "tokens")
			for _, i := range in {
				n = min(n, w.limits[i].room/w.limits[i].token)
			}
			return n
		}
		rt.Repeat(map[string]func(*rapid.T){
			"time": func(rt *rapid.T) {
				w.flow(rapid.SampledFrom([]int64{0, 1, 33, 500, 1000, 33_333, 142_857, 2_000_000}).Draw(rt, "us"))
			},
			"rows": func(rt *rapid.T) {
				in := rapid.SliceOfN(rapid.IntRange(0, 2), 1, 6).Draw(rt, "rows")
				var n []int64
				for _, i := range in {
					n = append(n, tokens([]int{i}))
				}
				w.allowRows(in, n)
			},
			"all": func(*rapid.T) {
				in := some()
				w.allowAll(in, tokens(in))
			},
			"reserve": func(rt *rapid.T) {
				in := some()
				w.reserve(in, tokens(in), rapid.SampledFrom([]int64{0, 1000, 500_000, 2_000_000}).Draw(rt, "longest"))
			},
			"settle": func(rt *rapid.T) {
				if len(w.books) > 0 {
					b := rapid.SampledFrom(w.books).Draw(rt, "book")
					w.settle(b, rapid.Int64Range(0, b.n+3).Draw(rt, "used"))
				}
			},
			"expiry": func(*rapid.T) { // of what says nothing any more
				for i, l := range w.limits {
					if w.debts[i] == 0 && strings.HasSuffix(c.Get(t.Context(), l.key).Val(), " 0") {
						require.NoError(rt, c.Del(t.Context(), l.key).Err())
					}
				}
			},
		})
		w.checkWindows()
	})
}

// A clock that is set back makes a limit pass less for as long as the longest debt takes to flow back, at most.
func TestAClockThatStepsBackCostsAtMostTheLongestDebt(t *testing.T) {
	t.Parallel()
	s, key := newClocked(t, luatomictest.Client(t)), "limit:{"+luatomictest.Namespace(t)+"}"
	l := newRated(t, key, limit.Per(10, time.Second), time.Minute)
	passed, _ := s.allow(l, 10)
	require.True(t, passed)
	s.now -= time.Hour.Microseconds()
	passed, debt := s.allow(l, 1)
	require.False(t, passed)
	require.Equal(t, l.most, debt)
	reply := s.run(&limitscript.ReserveScript, []string{key + "r", key},
		append([]any{int64(1e12), 1000}, l.row(1)...)...)
	require.EqualValues(t, 1, reply.([]any)[0])
	require.EqualValues(t, 60_100_000, reply.([]any)[1], "a minute and the token")
	s.now += 61_000_000
	passed, _ = s.allow(l, 1)
	require.True(t, passed)
	s.now -= time.Minute.Microseconds() * 24
	for _, keys := range [][]string{{key}, {key, key + "2"}} {
		rows := append(l.row(1), newRated(t, key+"2", limit.Per(1, time.Hour), time.Minute).row(1)...)[:4*len(keys)]
		reply := s.run(&limitscript.AllowAllScript, keys, rows...).([]any)
		require.EqualValues(t, 0, reply[0])
		require.Equal(t, l.most, reply[1].([]any)[0])
	}
}
