package queue_test

import (
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/luatomic/luatomic/queue"
)

// check compares every key and the stats, and waits until what is to end soon is over.
func (m *modelled) check(t *rapid.T) {
	tag := "{" + m.long.Name() + "}:"
	var list *redis.StringSliceCmd
	hashes, zsets := make(map[string]*redis.MapStringStringCmd), make(map[string]*redis.ZSliceCmd)
	_, err := m.c.Pipelined(m.ctx, func(p redis.Pipeliner) error {
		list = p.LRange(m.ctx, tag+"r", 0, -1)
		for _, suffix := range []string{"b", "n", "u", "c"} {
			hashes[suffix] = p.HGetAll(m.ctx, tag+suffix)
		}
		for _, suffix := range []string{"s", "l", "d", "ux"} {
			zsets[suffix] = p.ZRangeWithScores(m.ctx, tag+suffix, 0, -1)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, m.model.bodies, hashes["b"].Val())
	require.Equal(t, m.model.failures, hashes["n"].Val())
	require.Equal(t, m.model.holds, hashes["u"].Val())
	require.Equal(t, m.model.control(), hashes["c"].Val())
	require.NoError(t, adopt(m.model.scheduled, scores(zsets["s"])), "scheduled")
	require.NoError(t, adopt(m.model.leased, scores(zsets["l"])), "leased")
	require.NoError(t, adopt(m.model.dead, scores(zsets["d"])), "dead")
	require.Equal(t, m.model.ends, scores(zsets["ux"]))
	m.checkReady(t, list.Val())
	m.checkStats(t)
	m.wait(t)
}

func scores(cmd *redis.ZSliceCmd) map[string]int64 {
	out := make(map[string]int64)
	for _, z := range cmd.Val() {
		out[z.Member.(string)] = int64(z.Score)
	}
	return out
}

func (m *modelled) checkReady(t *rapid.T, entries []string) {
	require.Len(t, entries, len(m.model.ready))
	for i, entry := range entries {
		stamp, id, _ := strings.Cut(entry, ":")
		ms, err := strconv.ParseInt(stamp, 10, 64)
		require.NoError(t, err)
		want := &m.model.ready[i]
		require.Equal(t, want.id, id)
		require.True(t, want.at.from <= ms && ms <= want.at.to, "%q at %d, not at %v", id, ms, want.at)
		want.at = exactly(ms)
	}
}

func (m *modelled) checkStats(t *rapid.T) {
	got, err := m.long.Stats(m.ctx)
	require.NoError(t, err)
	due, scheduled := first(m.model.scheduled)
	requireTime(t, due, scheduled, time.Time.UnixMilli, got.NextDue.Get)
	want := queue.Stats{
		Ready: len(m.model.ready), Scheduled: len(m.model.scheduled), Leased: len(m.model.leased), Dead: len(m.model.dead),
		Now: got.Now, NextDue: got.NextDue, Oldest: got.Oldest, Paused: m.model.paused, Limit: m.model.limit, DeadBytes: m.model.deadBytes,
	}
	require.Equal(t, want, got)
	if len(m.model.ready) > 0 {
		requireTime(t, m.model.ready[0].at.from, true, time.Time.UnixMilli, got.Oldest.Get)
	}
}

// wait lets the server's clock pass what is over in less than a minute.
func (m *modelled) wait(t *rapid.T) {
	soon := m.now(t) + 60_000
	var last int64
	pass := func(at int64) {
		if at < soon {
			last = max(last, at)
		}
	}
	for _, at := range m.model.scheduled {
		pass(at.from)
	}
	for _, at := range m.model.leased {
		pass(at.from/1000 + 1)
	}
	for _, at := range m.model.ends {
		pass(at)
	}
	for m.now(t) < last {
		require.NoError(t, m.ctx.Err())
	}
}
