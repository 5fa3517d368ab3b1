package queue_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Random operations on a queue and on a model of it: every result and, after every step, every key must be the
// same. Times are either an hour, which no run reaches, or a millisecond, which has passed before the next step.
func TestQueueAgainstAModel(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	var runs atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		m := newModelled(t.Context(), rt, c, fmt.Sprintf("%s-%d", name, runs.Add(1)))
		for range 3 { // for longer histories than the 30 steps of one
			rt.Repeat(m.actions())
		}
	})
}

// actions are the operations by name. Names that differ in a digit only make one more frequent.
func (m *modelled) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"": m.check, "settings": m.settings,
		"push": m.push, "push 2": m.push,
		"take": m.take, "take 2": m.take, "take 3": m.take,
		"ack": m.ack, "ack 2": m.ack,
		"nack": m.nack, "return": m.giveBack, "bury": m.bury, "extend": m.extend,
		"reclaim": m.reclaim, "reclaim 2": m.reclaim, "promote": m.promote,
		"cancel": m.cancel, "bury jobs": m.buryJobs, "reschedule": m.reschedule, "requeue": m.requeue, "trim": m.trim,
	}
}

// modelled is a queue with its model. The two clients of the queue differ in their lease.
type modelled struct {
	ctx         context.Context
	c           *redis.Client
	short, long *queue.Queue
	model       *queueModel
	taken       []*queue.Delivery // the last ones, lost leases among them
	stopped     map[*queue.Delivery]bool
}

const modelFailures = 3

func newModelled(ctx context.Context, t *rapid.T, c *redis.Client, name string) *modelled {
	m := &modelled{ctx: ctx, c: c, model: newQueueModel(), stopped: make(map[*queue.Delivery]bool)}
	var err error
	m.short, err = queue.New(c, name, &queue.Options{Lease: time.Millisecond, MaxFailures: modelFailures})
	require.NoError(t, err)
	m.long, err = queue.New(c, name, &queue.Options{Lease: time.Hour, MaxFailures: modelFailures})
	require.NoError(t, err)
	return m
}

// time is the server's; now is the same in ms.
func (m *modelled) time(t *rapid.T) time.Time {
	at, err := m.c.Time(m.ctx).Result()
	require.NoError(t, err)
	return at
}

func (m *modelled) now(t *rapid.T) int64 { return m.time(t).UnixMilli() }

var (
	drawID    = rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
	drawDelay = rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Hour})
)

func (m *modelled) queue(t *rapid.T) (*queue.Queue, time.Duration) {
	if rapid.Bool().Draw(t, "long lease") {
		return m.long, time.Hour
	}
	return m.short, time.Millisecond
}

// requireTime wants an optional time to be present or not and, if present, to be at in that unit.
func requireTime(t *rapid.T, at int64, there bool, in func(time.Time) int64, get func() (time.Time, bool)) {
	got, ok := get()
	require.Equal(t, there, ok)
	if ok {
		require.Equal(t, at, in(got))
	}
}

// check compares every key and the stats, then waits until what ends soon has ended.
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
	least, most := 0, 0
	got, err := m.long.Stats(m.ctx)
	require.NoError(t, err)
	due, scheduled := first(m.model.scheduled)
	requireTime(t, due, scheduled, time.Time.UnixMilli, got.NextDue.Get)
	for _, at := range m.model.leased { // Stats.Now is rounded down to a millisecond
		if at.to <= got.Now.UnixMicro() {
			least++
		}
		if at.from < got.Now.UnixMicro()+1000 {
			most++
		}
	}
	require.GreaterOrEqual(t, got.Lapsed, least)
	require.LessOrEqual(t, got.Lapsed, most)
	want := queue.Stats{
		Lapsed: got.Lapsed, Ready: len(m.model.ready), Scheduled: len(m.model.scheduled),
		Leased: len(m.model.leased), Dead: len(m.model.dead), DeadBytes: m.model.deadBytes,
		Now: got.Now, NextDue: got.NextDue, Oldest: got.Oldest, Paused: m.model.paused, Limit: m.model.limit,
	}
	require.Equal(t, want, got)
	if len(m.model.ready) > 0 {
		requireTime(t, m.model.ready[0].at.from, true, time.Time.UnixMilli, got.Oldest.Get)
	}
}

// wait returns when the server's clock has passed all times of the next minute.
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

func (m *modelled) settings(t *rapid.T) {
	m.model.paused = rapid.SampledFrom([]bool{false, false, false, false, true}).Draw(t, "paused")
	call := m.long.Resume
	if m.model.paused {
		call = m.long.Pause
	}
	require.NoError(t, call(m.ctx))
	m.model.limit = rapid.SampledFrom([]int{0, 0, 3, 5}).Draw(t, "limit")
	require.NoError(t, m.long.SetLimit(m.ctx, m.model.limit))
}

// queueModel is what the keys of a queue should hold. Its methods are the operations, at a time by the server's
// clock.
type queueModel struct {
	ready                   []slot
	scheduled, leased, dead map[string]span
	bodies                  map[string]string
	failures                map[string]string // id to count, or x; id and a line feed to the reason
	holds                   map[string]string // k:name to id, j:id to name
	ends                    map[string]int64  // name to the end of its hold
	paused                  bool
	limit, deadBytes        int

	ended    map[string]bool // ids that are known after the end of their jobs, as the last push found them
	receipts map[string]queue.Pushed
	tokens   map[string]string // what was pushed under each
}

// slot is an entry of the ready list.
type slot struct {
	id string
	at span
}

// span is a time in ms, in us for a lease, between two others: the server does not always report when an operation
// ran.
type span struct{ from, to int64 }

func exactly(at int64) span { return span{at, at} }

func (s span) plus(d int64) span { return span{s.from + d, s.to + d} }

func newQueueModel() *queueModel {
	return &queueModel{
		scheduled: make(map[string]span), leased: make(map[string]span), dead: make(map[string]span),
		bodies: make(map[string]string), failures: make(map[string]string),
		holds: make(map[string]string), ends: make(map[string]int64),
		receipts: make(map[string]queue.Pushed),
		tokens:   make(map[string]string),
	}
}

// inOrder returns the ids of a zset by time, then by name, up to a time.
func inOrder(zset map[string]span, until int64) []string {
	var ids []string
	for id, at := range zset {
		if at.from <= until {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(zset[a].from, zset[b].from), cmp.Compare(a, b))
	})
	return ids
}

// first is the earliest time of a zset.
func first(zset map[string]span) (at int64, ok bool) {
	if ids := inOrder(zset, noEnd); len(ids) > 0 {
		return zset[ids[0]].from, true
	}
	return 0, false
}

// control is the hash of the settings.
func (m *queueModel) control() map[string]string {
	out := make(map[string]string)
	if m.paused {
		out["paused"] = "1"
	}
	if m.limit > 0 {
		out["limit"] = strconv.Itoa(m.limit)
	}
	if m.deadBytes != 0 { // the field goes with the last byte
		out["dead_bytes"] = strconv.Itoa(m.deadBytes)
	}
	return out
}

// adopt compares the times of a zset with the server's and keeps the server's.
func adopt(want map[string]span, got map[string]int64) error {
	if len(want) != len(got) {
		return fmt.Errorf("%v, not %v", got, slices.Sorted(maps.Keys(want)))
	}
	for id, at := range want {
		ms, ok := got[id]
		if !ok || ms < at.from || ms > at.to {
			return fmt.Errorf("%q at %d, not at %v", id, ms, at)
		}
		want[id] = exactly(ms)
	}
	return nil
}
