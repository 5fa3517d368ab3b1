package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Random operations on a queue and on a model of it: every answer and, after every
// step, every key must be the same. Times are either an hour, which nobody lives to
// see, or a millisecond, which is over before the next step.
func TestQueueAgainstAModel(t *testing.T) {
	t.Parallel()
	for part := range 2 {
		t.Run(strconv.Itoa(part), func(t *testing.T) {
			t.Parallel()
			c, name := luatomictest.Client(t), luatomictest.Namespace(t)
			var runs atomic.Int64
			rapid.Check(t, func(rt *rapid.T) {
				m := newModelled(t.Context(), rt, c, fmt.Sprintf("%s-%d", name, runs.Add(1)))
				for range 3 { // for longer histories than the 30 steps of one
					rt.Repeat(m.actions())
				}
			})
		})
	}
}

// actions are the operations by name; the names that differ in a digit only make one
// more frequent.
func (m *modelled) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"": m.check, "settings": m.settings,
		"push": m.push, "push 2": m.push,
		"take": m.take, "take 2": m.take, "take 3": m.take,
		"ack": m.ack, "ack 2": m.ack,
		"nack": m.nack, "return": m.giveBack, "bury": m.bury, "extend": m.extend,
		"reclaim": m.reclaim, "reclaim 2": m.reclaim, "promote": m.promote,
		"cancel": m.cancel, "reschedule": m.reschedule, "requeue": m.requeue, "trim": m.trim,
	}
}

// modelled is a queue with its model. The two clients of the queue differ in their
// lease.
type modelled struct {
	ctx         context.Context
	c           *redis.Client
	short, long *queue.Queue
	model       *queueModel
	taken       []*queue.Delivery // the last ones, stale ones among them
}

const modelFailures = 2

func newModelled(ctx context.Context, t *rapid.T, c *redis.Client, name string) *modelled {
	m := &modelled{ctx: ctx, c: c, model: newQueueModel()}
	var err error
	m.short, err = queue.New(c, name, &queue.Options{Lease: time.Millisecond, MaxFailures: modelFailures})
	require.NoError(t, err)
	m.long, err = queue.New(c, name, &queue.Options{Lease: time.Hour, MaxFailures: modelFailures})
	require.NoError(t, err)
	return m
}

// time is the server's, and now the same in ms.
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

func (m *modelled) drawJob(t *rapid.T) queue.Job {
	j := queue.Job{
		ID:     rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e"}).Draw(t, "id"),
		Unique: rapid.SampledFrom([]string{"", "", "x", "y"}).Draw(t, "unique"),
		Body:   []byte(rapid.StringN(0, 5, -1).Draw(t, "body")),
		Delay:  drawDelay.Draw(t, "delay"),
	}
	if j.Unique != "" {
		j.UniqueTTL = drawDelay.Draw(t, "hold")
	}
	if j.Delay == 0 && rapid.Bool().Draw(t, "at") {
		j.At = time.UnixMilli(rapid.SampledFrom([]int64{1, time.Now().Add(time.Hour).UnixMilli()}).Draw(t, "due"))
	}
	return j
}

func (m *modelled) push(t *rapid.T) {
	jobs := make([]queue.Job, rapid.IntRange(1, 4).Draw(t, "jobs"))
	fresh := true
	for i := range jobs {
		jobs[i] = m.drawJob(t)
		fresh = fresh && jobs[i].ID == ""
	}
	token := rapid.SampledFrom([]string{"", "", "t1", "t2"}).Draw(t, "token")
	before := m.now(t)
	var got queue.Pushed
	var err error
	if token == "" {
		got, err = m.long.Push(m.ctx, jobs...)
	} else {
		got, err = m.long.PushOnce(m.ctx, token, jobs...)
	}
	if first, again := m.model.receipts[token]; again && err == nil {
		got.IDs = first.IDs // ids made for the call differ
		require.Equal(t, first, got)
		return
	}
	if errors.Is(err, queue.ErrFull) {
		for i := range jobs {
			if jobs[i].ID == "" {
				jobs[i].ID = fmt.Sprint("new ", i)
			}
		}
		_, full := m.model.push(jobs, fresh, before)
		require.True(t, full, "refused although there is room")
		return
	}
	require.NoError(t, err)
	for i := range jobs {
		jobs[i].ID = got.IDs[i]
	}
	want, full := m.model.push(jobs, fresh, got.Now.UnixMilli())
	require.False(t, full, "past the limit")
	want.IDs, want.Now = got.IDs, got.Now
	require.Equal(t, want, got)
	if token != "" {
		m.model.receipts[token] = got
	}
}

func (m *modelled) take(t *rapid.T) {
	q, lease := m.queue(t)
	most := rapid.IntRange(1, 5).Draw(t, "max")
	lapse, leased := first(m.model.leased)
	got, err := q.Take(m.ctx, most)
	require.NoError(t, err)
	fence := got.Now.Add(lease).UnixMicro()
	want, dropped := m.model.take(most, fence, got.Now.UnixMilli())
	require.Equal(t, m.model.paused, got.Paused)
	require.Equal(t, dropped, got.Dropped)
	require.Len(t, got.Deliveries, len(want))
	for i, d := range got.Deliveries {
		require.Equal(t, want[i].id, d.ID)
		require.Equal(t, m.model.bodies[d.ID], string(d.Body))
		failures, _ := strconv.Atoi(m.model.failures[d.ID])
		require.Equal(t, failures+1, d.Attempt)
		require.Equal(t, want[i].at, exactly(d.EnqueuedAt.UnixMilli()))
		require.Equal(t, fence, d.Deadline().UnixMicro())
	}
	due, scheduled := first(m.model.scheduled)
	requireTime(t, due, scheduled, time.Time.UnixMilli, got.NextDue.Get)
	requireTime(t, lapse, leased, time.Time.UnixMicro, got.NextLapse.Get)
	m.taken = append(m.taken, got.Deliveries...)
	m.taken = slices.Clone(m.taken[max(len(m.taken)-12, 0):])
}

// requireTime wants an optional time to be at, in that unit, if it is to be there.
func requireTime(t *rapid.T, at int64, there bool, in func(time.Time) int64, get func() (time.Time, bool)) {
	got, ok := get()
	require.Equal(t, there, ok)
	if ok {
		require.Equal(t, at, in(got))
	}
}

// draw chooses some deliveries, which may be over or come twice.
func (m *modelled) draw(t *rapid.T) (ds []*queue.Delivery, before fences) {
	if len(m.taken) == 0 {
		t.Skip("none taken")
	}
	from := m.taken
	if rapid.IntRange(0, 3).Draw(t, "stale") > 0 {
		from = slices.DeleteFunc(slices.Clone(m.taken), func(d *queue.Delivery) bool { return !m.model.holdsLease(d.ID, d.Deadline().UnixMicro()) })
	}
	if len(from) == 0 {
		from = m.taken
	}
	ds = rapid.SliceOfN(rapid.SampledFrom(from), 1, 3).Draw(t, "deliveries")
	for _, d := range ds {
		before = append(before, struct {
			id    string
			fence int64
		}{d.ID, d.Deadline().UnixMicro()})
	}
	return ds, before
}

// requireLost wants the error that names these ids, or none.
func requireLost(t *rapid.T, ids []string, err error) {
	if len(ids) == 0 {
		require.NoError(t, err)
		return
	}
	var lost *queue.LeaseLostError
	require.ErrorAs(t, err, &lost)
	require.ErrorIs(t, err, queue.ErrLeaseLost)
	require.Equal(t, ids, lost.IDs)
}

func (m *modelled) ack(t *rapid.T) {
	ds, before := m.draw(t)
	err := m.long.Ack(m.ctx, ds...)
	requireLost(t, m.model.ack(before), err)
}

func (m *modelled) settle(t *rapid.T, delay time.Duration, reason string, call func([]*queue.Delivery) error) {
	ds, before := m.draw(t)
	from := m.now(t)
	err := call(ds)
	ms := delay.Milliseconds()
	if delay < 0 {
		ms = -1
	}
	requireLost(t, m.model.nack(before, ms, reason, span{from, m.now(t)}), err)
}

func (m *modelled) nack(t *rapid.T) {
	delay, reason := drawDelay.Draw(t, "delay"), rapid.SampledFrom([]string{"first", "second"}).Draw(t, "reason")
	m.settle(t, delay, reason, func(ds []*queue.Delivery) error { return m.long.Nack(m.ctx, delay, reason, ds...) })
}

func (m *modelled) giveBack(t *rapid.T) {
	delay := drawDelay.Draw(t, "delay")
	m.settle(t, delay, "", func(ds []*queue.Delivery) error { return m.long.Return(m.ctx, delay, ds...) })
}

func (m *modelled) bury(t *rapid.T) {
	m.settle(t, -1, "dead", func(ds []*queue.Delivery) error { return m.long.Bury(m.ctx, "dead", ds...) })
}

func (m *modelled) extend(t *rapid.T) {
	ds, before := m.draw(t)
	lease := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Hour}).Draw(t, "lease")
	from := m.time(t).UnixMicro()
	err := m.long.Extend(m.ctx, lease, ds...)
	requireLost(t, m.model.extend(before, span{from, m.time(t).UnixMicro()}.plus(lease.Microseconds())), err)
}

func (m *modelled) reclaim(t *rapid.T) {
	got, err := m.long.Reclaim(m.ctx)
	require.NoError(t, err)
	returned, buried := m.model.reclaim(modelFailures, got.Now)
	require.Equal(t, returned, got.Returned)
	require.Equal(t, buried, got.Buried)
	lapse, leased := first(m.model.leased)
	requireTime(t, lapse, leased, time.Time.UnixMicro, got.NextLapse.Get)
}

func (m *modelled) promote(t *rapid.T) {
	got, err := m.long.Promote(m.ctx)
	require.NoError(t, err)
	require.Equal(t, m.model.promote(queue.MaxBatch, got.Now.UnixMilli()), got.Moved)
	due, scheduled := first(m.model.scheduled)
	requireTime(t, due, scheduled, time.Time.UnixMilli, got.NextDue.Get)
}

func (m *modelled) cancel(t *rapid.T) {
	ids := rapid.SliceOfN(drawID, 1, 3).Draw(t, "ids")
	got, err := m.long.Cancel(m.ctx, ids...)
	require.NoError(t, err)
	want := make([]queue.State, len(ids))
	for i, id := range ids {
		want[i] = m.model.cancel(id)
	}
	require.Equal(t, want, got)
}

func (m *modelled) reschedule(t *rapid.T) {
	id, mode := drawID.Draw(t, "id"), rapid.SampledFrom([]string{"any", "earlier", "later"}).Draw(t, "mode")
	at := rapid.SampledFrom([]int64{1, m.now(t) + 1, m.now(t) + time.Hour.Milliseconds()}).Draw(t, "at")
	call := map[string]func(context.Context, string, time.Time) (queue.Rescheduled, error){
		"any": m.long.Reschedule, "earlier": m.long.RescheduleEarlier, "later": m.long.RescheduleLater}[mode]
	got, err := call(m.ctx, id, time.UnixMilli(at))
	require.NoError(t, err)
	found, moved := m.model.reschedule(id, at, mode == "earlier", mode == "later")
	require.Equal(t, found, got.Found)
	require.Equal(t, moved, got.Moved)
	if found {
		require.Equal(t, m.model.scheduled[id], exactly(got.Due.UnixMilli()))
	}
}

func (m *modelled) requeue(t *rapid.T) {
	ids := rapid.SliceOfN(drawID, 0, 2).Draw(t, "ids")
	from := m.now(t)
	got, err := m.long.Requeue(m.ctx, ids...)
	require.NoError(t, err)
	require.Equal(t, m.model.requeue(ids, span{from, m.now(t)}), got)
}

func (m *modelled) trim(t *rapid.T) {
	keep := rapid.IntRange(1, 3).Draw(t, "keep")
	got, err := m.long.Trim(m.ctx, queue.DeadLimits{Jobs: keep})
	require.NoError(t, err)
	require.Equal(t, m.model.trim(keep), got)
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
