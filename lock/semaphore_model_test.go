package lock_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
)

// Random calls of the semaphore's scripts and of a model of them: answers, holders,
// the queue and the notifications must be the same after every step. A lease lasts for an
// hour, or for a millisecond that is over before the next step. Waiters live, or
// have a channel without a subscriber.
func TestSemaphoreAgainstAModel(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	var runs atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		m := newModelledSem(t.Context(), c, fmt.Sprintf("%s-%d", name, runs.Add(1)))
		defer m.sub.Close()
		rt.Repeat(map[string]func(*rapid.T){
			"": m.check, "try": m.try, "wait": m.wait, "wait 2": m.wait, "look": m.recheck, "look 2": m.recheck,
			"release": m.release, "release 2": m.release, "extend": m.extend, "resize": m.resize,
		})
	})
}

// modelledSem is a semaphore with its model.
type modelledSem struct {
	ctx            context.Context
	c              *redis.Client
	sub            *redis.PubSub
	permits, queue string
	pending        []*redis.Message // received while subscribing
	alive          map[string]bool  // of each token
	tokens         []string

	limit    int             // 0 while nothing is known
	holders  map[string]bool // token to whether its lease is the long one
	handed   map[string]bool // granted in the queue, and not confirmed by a call of the holder
	over     map[string]bool // their leases have ended
	marks    map[string]bool // given back: true, given back before it came: false
	marked   map[string]time.Time
	line     []semWaiter
	notified []string // the live waiters that the last call granted a permit
	fence    int64
	given    map[int64]string
}

type semWaiter struct {
	token, entry string
	alive, long  bool
}

func newModelledSem(ctx context.Context, c *redis.Client, k string) *modelledSem {
	m := &modelledSem{
		ctx: ctx, c: c, permits: "sem:{" + k + "}", queue: "semq:{" + k + "}", alive: make(map[string]bool),
		given: make(map[int64]string), holders: make(map[string]bool), over: make(map[string]bool),
		handed: make(map[string]bool),
		marks:  make(map[string]bool), marked: make(map[string]time.Time),
	}
	m.sub = c.Subscribe(ctx)
	return m
}

func (m *modelledSem) used() (sum int) {
	for token := range m.holders {
		sum += int(scriptcase.SemWeight(token))
	}
	return sum
}

// mark notes that a token was given back. The time is that of the first, as on the
// server.
func (m *modelledSem) mark(token string, had bool) {
	if _, again := m.marks[token]; !again {
		m.marked[token] = time.Now()
	}
	m.marks[token] = had
	if !slices.Contains(m.tokens, token) {
		m.tokens = append(m.tokens, token)
	}
}

func (m *modelledSem) fits(token string) bool {
	return m.used()+int(scriptcase.SemWeight(token)) <= m.limit
}

// hold stores a permit that its holder knows of.
func (m *modelledSem) hold(token string, long bool) {
	m.holders[token] = long
	delete(m.handed, token)
}

// leave takes a token out of the queue.
func (m *modelledSem) leave(token string) bool {
	i := slices.IndexFunc(m.line, func(w semWaiter) bool { return w.token == token })
	if i >= 0 {
		m.line = slices.Delete(m.line, i, i+1)
	}
	return i >= 0
}

// grant serves the head of the queue, and reports whether owner was granted a permit: for the lease of its call, which
// may differ from that of its entry.
func (m *modelledSem) grant(owner string, long bool) (mine bool) {
	for len(m.line) > 0 {
		head := m.line[0]
		_, held := m.holders[head.token]
		_, marked := m.marks[head.token]
		switch {
		case int(scriptcase.SemWeight(head.token)) > m.limit, marked:
		case !m.fits(head.token) && !held:
			if head.alive || head.token == owner {
				return mine
			}
		case head.token == owner:
			m.hold(head.token, long)
			mine = true
		case head.alive:
			m.hold(head.token, head.long)
			m.handed[head.token] = true
			m.notified = append(m.notified, head.token)
		}
		m.line = slices.Delete(m.line, 0, 1)
	}
	return mine
}

// fresh makes a token of some weight, of a process of its own, which lives or not.
func (m *modelledSem) fresh(t *rapid.T) string {
	process := fmt.Sprint("p", len(m.tokens))
	token := fmt.Sprintf("%s.1:%d", process, rapid.IntRange(1, 3).Draw(t, "weight"))
	m.tokens = append(m.tokens, token)
	if m.alive[token] = rapid.IntRange(0, 3).Draw(t, "dead") > 0; !m.alive[token] {
		return token
	}
	require.NoError(t, m.sub.Subscribe(m.ctx, m.permits+":"+process))
	for {
		said, err := m.sub.ReceiveTimeout(m.ctx, 20*time.Second)
		require.NoError(t, err)
		message, ok := said.(*redis.Message)
		if !ok {
			return token
		}
		m.pending = append(m.pending, message)
	}
}

// known draws a token, mostly one that holds or waits.
func (m *modelledSem) known(t *rapid.T) string {
	var some []string
	for _, token := range m.tokens {
		if _, held := m.holders[token]; held {
			some = append(some, token)
		}
	}
	for _, w := range m.line {
		some = append(some, w.token)
	}
	if len(some) == 0 || rapid.IntRange(0, 4).Draw(t, "any") == 0 {
		some = []string{fmt.Sprintf("p.never%d:1", len(m.marks))}
		for _, token := range m.tokens {
			if at, marked := m.marked[token]; !marked || time.Since(at) < 5*time.Second {
				some = append(some, token) // the server forgets a mark after 10 s
			}
		}
	}
	return rapid.SampledFrom(some).Draw(t, "token")
}

func (m *modelledSem) draw(t *rapid.T) (limit int, ttl time.Duration, long bool) {
	limit = max(m.limit, 3)
	if m.limit == 0 || rapid.IntRange(0, 9).Draw(t, "other limit") == 0 {
		limit = rapid.IntRange(3, 6).Draw(t, "limit")
	}
	if rapid.IntRange(0, 3).Draw(t, "short") == 0 {
		return limit, time.Millisecond, false
	}
	return limit, time.Hour, true
}

// acquire is a call of the script and of the model.
func (m *modelledSem) acquire(t *rapid.T, w semWaiter, limit int, ttl time.Duration) {
	m.notified = nil
	r, err := lockscript.SemAcquire(m.ctx, m.c, lockscript.SemAcquireParams{
		Permits: m.permits, Queue: m.queue, Channel: m.permits + ":", Owner: w.token, Limit: int64(limit), TTL: ttl,
		Entry: w.entry,
	})
	require.NoError(t, err)
	place, mine := lockscript.SemAcquirePlaceNone, false
	_, held := m.holders[w.token]
	_, marked := m.marks[w.token]
	queued := w.entry != "" && slices.ContainsFunc(m.line, func(o semWaiter) bool { return o.entry == w.entry })
	switch {
	case held:
		m.leave(w.token)
		mine = true
		if m.handed[w.token] { // its lease begins with the call that confirms it
			m.hold(w.token, w.long)
		}
	case marked:
		place = lockscript.SemAcquirePlaceVoid
	case int(scriptcase.SemWeight(w.token)) > cmp.Or(m.limit, limit):
		place = lockscript.SemAcquirePlaceRefused
		if queued {
			m.leave(w.token)
		}
	default:
		if m.limit == 0 {
			m.limit = limit
		}
		place, mine = m.enter(w, queued)
	}
	require.Equal(t, mine, r.Acquired)
	if mine {
		m.gives(t, r.Fence, w.token)
	} else {
		require.Equal(t, place, r.Place)
		require.Equal(t, place == lockscript.SemAcquirePlaceRefused, r.Remaining == 0)
	}
}

// enter takes a permit or a place in the queue.
func (m *modelledSem) enter(w semWaiter, queued bool) (place lockscript.SemAcquirePlace, mine bool) {
	if len(m.line) == 0 && m.fits(w.token) {
		m.hold(w.token, w.long)
		return place, true
	}
	front := slices.Clone(m.line[:min(len(m.line), 1)])
	if w.entry != "" {
		place = lockscript.SemAcquirePlaceWaiting
		if !queued {
			place = lockscript.SemAcquirePlaceJoined
			m.line = append(m.line, w)
		}
	}
	if len(front) == 0 || place != lockscript.SemAcquirePlaceWaiting && !m.fits(w.token) && !m.fits(front[0].token) {
		return place, false
	}
	if mine = m.grant(w.token, w.long); !mine && w.entry == "" && len(m.line) == 0 && m.fits(w.token) {
		m.hold(w.token, w.long)
		mine = true
	}
	return place, mine
}

func (m *modelledSem) try(t *rapid.T) {
	limit, ttl, long := m.draw(t)
	token := m.fresh(t)
	if rapid.IntRange(0, 4).Draw(t, "repeat") == 0 {
		token = m.known(t)
	}
	m.acquire(t, semWaiter{token: token, long: long}, limit, ttl)
}

func (m *modelledSem) wait(t *rapid.T) {
	limit, ttl, long := m.draw(t)
	w := semWaiter{token: m.fresh(t), long: long}
	w.alive, w.entry = m.alive[w.token], fmt.Sprintf("%s %d\n", w.token, ttl.Milliseconds())
	m.acquire(t, w, limit, ttl)
}

// recheck is a further attempt of a waiter.
func (m *modelledSem) recheck(t *rapid.T) {
	if len(m.line) == 0 {
		t.Skip("there is no waiter")
	}
	limit, _, _ := m.draw(t)
	w := m.line[0]
	if rapid.Bool().Draw(t, "not the head") {
		w = rapid.SampledFrom(m.line).Draw(t, "who")
	}
	ttl := time.Millisecond
	if w.long {
		ttl = time.Hour
	}
	m.acquire(t, w, limit, ttl)
}

func (m *modelledSem) release(t *rapid.T) {
	token := m.known(t)
	m.notified = nil
	entry := ""
	if i := slices.IndexFunc(m.line, func(w semWaiter) bool { return w.token == token }); i >= 0 {
		entry = m.line[i].entry
	}
	got, err := lockscript.SemRelease(m.ctx, m.c, lockscript.SemReleaseParams{
		Permits: m.permits, Queue: m.queue, Channel: m.permits + ":", Owner: token, Entry: entry,
	})
	require.NoError(t, err)
	want := lockscript.SemReleaseResultExpired
	if m.leave(token) {
		want = lockscript.SemReleaseResultLeft
	}
	_, held := m.holders[token]
	switch {
	case held, m.marks[token]:
		want = lockscript.SemReleaseResultReleased
		delete(m.holders, token)
		m.mark(token, true)
	case m.over[token] && got == lockscript.SemReleaseResultReleased: // nobody has taken its place
		want = got
		m.mark(token, true)
	default:
		m.mark(token, false)
	}
	require.Equal(t, want, got)
	if m.limit > 0 {
		m.grant("", false)
	}
}

func (m *modelledSem) extend(t *rapid.T) {
	token := m.known(t)
	m.notified = nil
	got, err := lockscript.SemExtend(m.ctx, m.c, lockscript.SemExtendParams{Permits: m.permits, Owner: token,
		TTL: time.Hour})
	require.NoError(t, err)
	want := lockscript.SemExtendResultExpired
	if _, held := m.holders[token]; held {
		m.hold(token, true)
		want = lockscript.SemExtendResultExtended
	}
	require.Equal(t, want, got)
}

func (m *modelledSem) resize(t *rapid.T) {
	limit := rapid.IntRange(2, 7).Draw(t, "limit")
	m.notified = nil
	before, err := lockscript.SemResize(m.ctx, m.c, lockscript.SemResizeParams{
		Permits: m.permits, Queue: m.queue, Channel: m.permits + ":", Size: int64(limit),
	})
	require.NoError(t, err)
	require.Equal(t, int64(m.limit), before)
	m.limit = limit
	m.grant("", false)
}
