package lock_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// These are the branches of the scripts of a semaphore that the package reaches by an accident of time only. What
// lock_sem_acquire, lock_sem_release and lock_sem_resize have in common is asked of each of them.

// rawSem is a semaphore whose scripts are called raw.
type rawSem struct {
	t              *testing.T
	c              *redis.Client
	permits, queue string
	now            float64 // the server's clock in ms when it was made
}

// newRawSem makes one of that limit. The leases are given by their rest.
func newRawSem(t *testing.T, limit int, leases map[string]time.Duration, entries ...string) rawSem {
	t.Helper()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	s := rawSem{t, c, "sem:{" + name + "}", "semq:{" + name + "}", float64(c.Time(t.Context()).Val().UnixMilli())}
	require.NoError(t, c.Del(t.Context(), s.permits, s.queue).Err())
	holders := make(map[string]float64, len(leases))
	for member, rest := range leases {
		holders[member] = s.now + float64(rest.Milliseconds())
	}
	require.NoError(t, scriptcase.SemOf(limit, holders, entries...)(t.Context(), c, name))
	return s
}

// score is that of a member, 0 without it.
func (s rawSem) score(member string) float64 {
	return s.c.ZScore(s.t.Context(), s.permits, member).Val()
}

// set adds a member, or gives it another score.
func (s rawSem) set(member string, score float64) {
	s.t.Helper()
	require.NoError(s.t, s.c.ZAdd(s.t.Context(), s.permits, redis.Z{Score: score, Member: member}).Err())
}

// standing are the entries of those waiters.
func standing(tokens ...string) (entries []string) {
	for _, token := range tokens {
		entries = append(entries, scriptcase.Standing(token))
	}
	return entries
}

// used is the sum of the weights that the semaphore stores.
func (s rawSem) used() int { return int(s.score("used") - scriptcase.SemBase) }

func (s rawSem) entries() []string { return s.c.ZRange(s.t.Context(), s.queue, 0, -1).Val() }

func (s rawSem) stays() time.Duration { return s.c.PTTL(s.t.Context(), s.permits).Val() }

func (s rawSem) acquire(p lockscript.SemAcquireParams) (lockscript.SemAcquireResult, error) {
	p.Permits, p.Queue, p.Channel = s.permits, s.queue, s.permits+":"
	return lockscript.SemAcquire(s.t.Context(), s.c, p)
}

func (s rawSem) release(p lockscript.SemReleaseParams) (lockscript.SemReleaseResult, error) {
	p.Permits, p.Queue, p.Channel = s.permits, s.queue, s.permits+":"
	return lockscript.SemRelease(s.t.Context(), s.c, p)
}

func (s rawSem) resize(limit int64) (int64, error) {
	return lockscript.SemResize(s.t.Context(), s.c, lockscript.SemResizeParams{
		Permits: s.permits, Queue: s.queue, Channel: s.permits + ":", Size: limit,
	})
}

// semGrants are the calls that grant to the head of the queue, each by a process that neither holds nor waits.
var semGrants = map[string]func(s rawSem, limit int64) error{
	"acquire": func(s rawSem, limit int64) error {
		_, err := s.acquire(lockscript.SemAcquireParams{Owner: "new.1:1", Limit: limit, TTL: time.Minute})
		return err
	},
	"release": func(s rawSem, _ int64) error {
		_, err := s.release(lockscript.SemReleaseParams{Owner: "new.1:1"})
		return err
	},
	"resize": func(s rawSem, limit int64) error {
		_, err := s.resize(limit)
		return err
	},
}

// eachGrant runs a test with each of them, one after another: each takes milliseconds, and would wait for its turn
// behind all tests of the package that are parallel.
func eachGrant(t *testing.T, test func(t *testing.T, call func(s rawSem, limit int64) error)) {
	for name, call := range semGrants {
		t.Run(name, func(t *testing.T) { test(t, call) })
	}
}

// said returns what the processes are notified of while a call runs, in order, each after the name of its process.
func (s rawSem) said(call func() error, processes ...string) (out []string) {
	s.t.Helper()
	ctx := s.t.Context()
	channels := []string{s.permits + ":end"}
	for _, process := range processes {
		channels = append(channels, s.permits+":"+process)
	}
	inbox := s.c.Subscribe(ctx, channels...)
	defer func() { _ = inbox.Close() }()
	for range channels {
		_, err := inbox.Receive(ctx)
		require.NoError(s.t, err)
	}
	require.NoError(s.t, call())
	require.NoError(s.t, s.c.Publish(ctx, channels[0], "").Err())
	for {
		message, err := inbox.ReceiveMessage(ctx)
		require.NoError(s.t, err)
		process := strings.TrimPrefix(message.Channel, s.permits+":")
		if process == "end" {
			return out
		}
		out = append(out, process+" "+message.Payload)
	}
}

// heads are the first words of each message: the process, the kind and the token.
func heads(said []string) (out []string) {
	for _, message := range said {
		out = append(out, strings.Join(strings.Fields(message)[:3], " "))
	}
	return out
}

// What is granted, the first waiter of another process learns of, as the head does that does not fit: both look when
// enough leases are over, in an hour here, and not when the first is over nor the last.
func TestAHeadThatDoesNotFitAndAnotherProcessKnowWhenToLook(t *testing.T) {
	t.Parallel()
	eachGrant(t, func(t *testing.T, call func(s rawSem, limit int64) error) {
		s := newRawSem(t, 4, map[string]time.Duration{
			"h.1:1": time.Hour, "h.1:1\nfirst": time.Hour, "h.2:1": 2 * time.Hour, "h.2:1\nsecond": 2 * time.Hour,
		}, standing("x.1:1", "a.1:3", "a.2:1", "b.1:1")...)
		said := s.said(func() error { return call(s, 4) }, "x", "a", "b")
		require.Equal(t, []string{"x g x.1:1", "a n a.1:3", "b n b.1:1"}, heads(said))
		for _, notice := range said[1:] {
			wait, err := strconv.Atoi(strings.Fields(notice)[3])
			require.NoError(t, err, notice)
			require.LessOrEqual(t, wait, 3_600_001)
			require.Greater(t, wait, 1_800_000, "the clock went on for half an hour at most")
		}
		require.Len(t, s.entries(), 3)
	})
}

// Where nothing is granted, the process of the head lives: it alone is notified.
func TestOnlyTheHeadIsNotifiedWhereNothingIsGranted(t *testing.T) {
	t.Parallel()
	eachGrant(t, func(t *testing.T, call func(s rawSem, limit int64) error) {
		s := newRawSem(t, 4, map[string]time.Duration{"h.1:2": time.Hour}, standing("a.1:3", "b.1:1")...)
		require.Equal(t, []string{"a n a.1:3"}, heads(s.said(func() error { return call(s, 4) }, "a", "b")))
	})
}

// A process that let a handed-over permit lapse is dead: what else it waits for is passed over. One that confirmed a
// permit lives on after its lease. Either way the weight is free again, once.
func TestAProcessThatNeverConfirmedIsPassedOver(t *testing.T) {
	t.Parallel()
	eachGrant(t, func(t *testing.T, call func(s rawSem, limit int64) error) {
		for fraction, want := range map[float64][]string{0: {"a g a.2:1", "b g b.1:1"}, 0.5: {"b g b.1:1"}} {
			s := newRawSem(t, 5, map[string]time.Duration{"a.1:3": -time.Minute, "live.1:2": time.Hour},
				standing("a.2:1", "b.1:1")...)
			s.set("a.1:3", s.now-60_000+fraction)
			s.set("a.1:3\nnote", s.now-60_000+fraction)
			s.set("old.1:1", -s.now+20_000) // released 20 s ago
			require.Equal(t, want, heads(s.said(func() error { return call(s, 5) }, "a", "b")))
			held := 2 + len(want)
			if s.score("new.1:1") > 0 {
				held++ // the newcomer fits behind them
			}
			require.Equal(t, held, s.used())
			require.Empty(t, s.entries())
			for _, gone := range []string{"a.1:3", "a.1:3\nnote", "old.1:1"} {
				require.Zero(t, s.score(gone), "%q", gone)
			}
		}
	})
}

// A waiter above the limit, and one whose permit was released before it came, leave the queue and learn of it.
func TestAWaiterThatCannotBeServedLeavesTheQueue(t *testing.T) {
	t.Parallel()
	eachGrant(t, func(t *testing.T, call func(s rawSem, limit int64) error) {
		s := newRawSem(t, 5, nil, standing("a.1:9", "b.1:1", "c.1:5")...)
		s.set("b.1:1", -s.now)
		said := s.said(func() error { return call(s, 5) }, "a", "b", "c")
		require.Equal(t, []string{"a f a.1:9", "b f b.1:1", "c g c.1:5"}, heads(said))
		require.Equal(t, 5, s.used())
		require.Empty(t, s.entries())
	})
}

// A grant has the lease and the note of its entry, and the semaphore stays for a minute longer than that lease.
func TestAGrantKeepsTheNoteAndTheSemaphore(t *testing.T) {
	t.Parallel()
	eachGrant(t, func(t *testing.T, call func(s rawSem, limit int64) error) {
		for _, stays := range []time.Duration{0, 10 * time.Minute} { // 0: an error half-way left it without an end
			s := newRawSem(t, 5, nil, "a.1:1 3600000\nthe note", "b.1:4 3600000\n")
			if stays == 0 {
				require.NoError(t, s.c.Persist(t.Context(), s.permits).Err())
			} else {
				require.NoError(t, s.c.Expire(t.Context(), s.permits, stays).Err())
			}
			said := s.said(func() error { return call(s, 5) }, "a", "b")
			require.Equal(t, []string{"a g a.1:1", "b g b.1:4"}, heads(said))
			over := s.score("a.1:1")
			require.GreaterOrEqual(t, over, s.now+3_600_000)
			require.Equal(t, 0.5, over-float64(int64(over)), "not confirmed")
			require.Equal(t, over, s.score("a.1:1\nthe note"))
			require.Zero(t, s.score("b.1:4\n"), "no note")
			if stays == 0 {
				require.Positive(t, s.stays())
			} else {
				require.Greater(t, s.stays(), time.Hour)
			}
		}
	})
}

// A release that grants gives an end to a semaphore that an error half-way left without one.
func TestAReleaseThatGrantsGivesTheSemaphoreAnEnd(t *testing.T) {
	t.Parallel()
	s := newRawSem(t, 1, map[string]time.Duration{"me.1:1": time.Hour}, "a.1:1 3600000\n")
	require.NoError(t, s.c.Persist(t.Context(), s.permits).Err())
	said := s.said(func() error {
		r, err := s.release(lockscript.SemReleaseParams{Owner: "me.1:1"})
		require.Equal(t, lockscript.SemReleaseResultReleased, r)
		return err
	}, "a")
	require.Equal(t, []string{"a g a.1:1"}, heads(said))
	require.Greater(t, s.stays(), time.Hour)
}

// A release that was made more than 10 s ago is not known any more: a repeat says so, each time, and an entry that an
// error half-way left behind gets no permit.
func TestALateRepeatOfAReleaseIsExpired(t *testing.T) {
	t.Parallel()
	for what, fraction := range map[string]float64{"released": 0, "revoked": 0.25, "never held": 0.5} {
		s := newRawSem(t, 5, nil, standing("me.1:1")...)
		s.set("me.1:1", -s.now+20_000-fraction)
		said := s.said(func() error {
			for range 2 {
				r, err := s.release(lockscript.SemReleaseParams{Owner: "me.1:1"})
				require.NoError(t, err)
				require.Equal(t, lockscript.SemReleaseResultExpired, r, what)
				require.Less(t, s.score("me.1:1"), -s.now+10_000, "%s: a request that comes later gets nothing", what)
			}
			return nil
		}, "me")
		require.Equal(t, []string{"me f me.1:1"}, heads(said), what)
		require.Zero(t, s.used(), what)
		require.Empty(t, s.entries(), what)
	}
}

// A process that releases is not dead, although it let a handed-over permit lapse: what it waits for is granted.
func TestAProcessThatReleasesIsNotDead(t *testing.T) {
	t.Parallel()
	for releases, want := range map[string][]string{"a.3:1": {"a g a.2:1", "b g b.1:1"}, "c.1:1": {"b g b.1:1"}} {
		s := newRawSem(t, 5, map[string]time.Duration{"a.1:3": -time.Minute, releases: time.Hour},
			standing("a.2:1", "b.1:1")...)
		s.set("a.1:3", s.now-60_000+0.5)
		said := s.said(func() error {
			_, err := s.release(lockscript.SemReleaseParams{Owner: releases})
			return err
		}, "a", "b")
		require.Equal(t, want, heads(said), "%s releases", releases)
	}
}

// A holder that was handed a permit confirms it when it first asks, with a whole lease. Later it learns what is left.
func TestAPermitIsConfirmedOnce(t *testing.T) {
	t.Parallel()
	ask := lockscript.SemAcquireParams{Owner: "me.1:1", Limit: 5, TTL: 3 * time.Hour}
	s := newRawSem(t, 5, map[string]time.Duration{"me.1:1": time.Hour})
	s.set("me.1:1", s.now+3_600_000.5)
	r, err := s.acquire(ask)
	require.NoError(t, err)
	require.True(t, r.Acquired)
	require.Equal(t, 3*time.Hour, r.Remaining)
	over := s.score("me.1:1")
	require.GreaterOrEqual(t, over, s.now+3*3_600_000)
	require.Zero(t, over-float64(int64(over)), "confirmed")

	s = newRawSem(t, 5, map[string]time.Duration{"me.1:1": time.Hour})
	r, err = s.acquire(ask)
	require.NoError(t, err)
	require.True(t, r.Acquired)
	require.LessOrEqual(t, r.Remaining, time.Hour)
	require.Equal(t, s.now+3_600_000, s.score("me.1:1"), "as it was")
}

// An extend takes the note of the holder along, or the note would be gone before the permit.
func TestAnExtendKeepsTheNote(t *testing.T) {
	t.Parallel()
	for _, note := range []string{"mine", ""} {
		s := newRawSem(t, 5, map[string]time.Duration{"me.1:1": time.Hour, "me.1:1\nmine": time.Hour})
		r, err := lockscript.SemExtend(t.Context(), s.c, lockscript.SemExtendParams{
			Permits: s.permits, Owner: "me.1:1", TTL: 3 * time.Hour, Note: note,
		})
		require.NoError(t, err)
		require.Equal(t, lockscript.SemExtendResultExtended, r)
		over := s.score("me.1:1")
		require.GreaterOrEqual(t, over, s.now+3*3_600_000)
		require.Zero(t, s.score("me.1:1\n"), "an empty note is none")
		if note != "" {
			require.Equal(t, over, s.score("me.1:1\nmine"))
		}
	}
}

// A release where the semaphore is lost knows no limit: the waiters stay as they are, and the next acquire has one.
func TestAReleaseOfALostSemaphoreLeavesTheWaiters(t *testing.T) {
	t.Parallel()
	entry := scriptcase.Standing("a.1:1")
	s := newRawSem(t, 5, nil, entry)
	require.NoError(t, s.c.Del(t.Context(), s.permits).Err())
	require.Empty(t, s.said(func() error {
		r, err := s.release(lockscript.SemReleaseParams{Owner: "me.1:1"})
		require.Equal(t, lockscript.SemReleaseResultExpired, r)
		return err
	}, "a"))
	require.Equal(t, []string{entry}, s.entries())
	require.Zero(t, s.score("limit"))

	said := s.said(func() error { return semGrants["acquire"](s, 5) }, "a")
	require.Equal(t, []string{"a g a.1:1"}, heads(said))
}

// A zset that is no semaphore of this version is refused by each script that writes one, and stays as it is.
func TestASemaphoreOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	for name, members := range map[string][]redis.Z{
		"another's":   {{Score: 5, Member: "x"}},
		"limit below": {{Score: scriptcase.SemBase - 1, Member: "limit"}},
		"limit above": {{Score: scriptcase.SemBase + 1<<31, Member: "limit"}},
		"used below 0": {{Score: scriptcase.SemBase + 1, Member: "limit"},
			{Score: scriptcase.SemBase - 1, Member: "used"}},
		"great fence":    {{Score: scriptcase.SemBase + 5, Member: "limit"}, {Score: 1 << 53, Member: "fence"}},
		"infinite fence": {{Score: scriptcase.SemBase + 5, Member: "limit"}, {Score: math.Inf(1), Member: "fence"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachGrant(t, func(t *testing.T, call func(s rawSem, limit int64) error) {
				s := newRawSem(t, 5, nil, scriptcase.Standing("a.1:1"))
				require.NoError(t, s.c.Del(t.Context(), s.permits).Err())
				require.NoError(t, s.c.ZAdd(t.Context(), s.permits, members...).Err())
				before := s.c.ZRangeWithScores(t.Context(), s.permits, 0, -1).Val()
				var e *lua.Error
				require.ErrorAs(t, call(s, 5), &e)
				require.Equal(t, "LAYOUT", e.Code)
				require.Equal(t, before, s.c.ZRangeWithScores(t.Context(), s.permits, 0, -1).Val())
				require.Len(t, s.entries(), 1)
			})
		})
	}
}

// A limit that no semaphore can have is refused by the scripts themselves: other programs call them, too.
func TestAScriptRefusesALimitThatCannotBe(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newRawSem(t, 5, nil)
	for _, limit := range []string{"0", "-1", "1073741825", "x", "", "nan", "inf"} {
		for script, args := range map[*lua.Script][]any{
			&lockscript.SemAcquireScript: {"me.1:1", limit, 60_000, "", "", "c"},
			&lockscript.SemResizeScript:  {limit, "c"},
		} {
			err := s.c.Eval(ctx, lab.Text(s.c, script), []string{s.permits, s.queue}, args...).Err()
			require.ErrorContains(t, err, "must be 1 to 1073741824", fmt.Sprint(script.Name, " ", limit))
			require.Equal(t, scriptcase.SemBase+5, s.score("limit"))
			require.Zero(t, s.used())
		}
	}
}
