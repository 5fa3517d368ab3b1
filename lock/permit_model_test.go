package lock_test

import (
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	lockscript "github.com/luatomic/luatomic/gen/lock"
)

// check compares all that the keys hold, and what was said, and waits until the short
// leases are over.
func (m *modelledSem) check(t *rapid.T) {
	for _, want := range m.notified {
		m.wantsGrant(t, want)
	}
	m.notified = nil
	var end time.Time
	for token, long := range m.holders {
		if !long {
			if end.IsZero() {
				end = m.c.Time(m.ctx).Val().Add(2 * time.Millisecond)
			}
			delete(m.holders, token)
			m.over[token] = true
		}
	}
	for !end.IsZero() && !m.c.Time(m.ctx).Val().After(end) {
		require.NoError(t, m.ctx.Err())
	}
	r, err := lockscript.SemInfo(m.ctx, m.c, lockscript.SemInfoParams{Permits: m.permits, Queue: m.queue, Max: 100,
		Waiters: 100})
	require.NoError(t, err)
	if r.Limit != 0 { // it is stored with the first permit
		require.Equal(t, int64(m.limit), r.Limit)
	}
	m.limit = int(r.Limit)
	require.Equal(t, int64(m.used()), r.Used)
	require.GreaterOrEqual(t, r.Fence, m.fence)
	m.fence = r.Fence
	var holders, entries []string
	for token := range m.holders {
		holders = append(holders, token)
	}
	require.ElementsMatch(t, holders, r.Members)
	for _, w := range m.line {
		entries = append(entries, w.entry)
	}
	require.ElementsMatch(t, entries, r.Entries)
	if len(entries) > 0 {
		require.Equal(t, entries, r.Entries, "order of arrival")
	}
}

// gives wants a fence that is greater than all before the call, and given once.
func (m *modelledSem) gives(t *rapid.T, fence int64, token string) {
	require.Greater(t, fence, m.fence)
	require.Empty(t, m.given[fence], "the fence of %s", token)
	m.given[fence] = token
}

// wantsGrant wants the next grant to be this token's.
func (m *modelledSem) wantsGrant(t *rapid.T, token string) {
	for {
		message := m.next(t, token)
		if rest, granted := strings.CutPrefix(message.Payload, "g "); granted {
			owner, rest, _ := strings.Cut(rest, " ")
			require.Equal(t, token, owner)
			text, _, _ := strings.Cut(rest, " ")
			fence, err := strconv.ParseInt(text, 10, 64)
			require.NoError(t, err)
			m.gives(t, fence, token)
			return
		}
	}
}

// next is the next message; the token is the one that should be notified.
func (m *modelledSem) next(t *rapid.T, token string) *redis.Message {
	if len(m.pending) > 0 {
		message := m.pending[0]
		m.pending = m.pending[1:]
		return message
	}
	said, err := m.sub.ReceiveTimeout(m.ctx, 20*time.Second)
	require.NoError(t, err, "%s was not notified", token)
	message, ok := said.(*redis.Message)
	require.True(t, ok)
	return message
}
