package queue_test

import (
	"slices"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/luatomic/luatomic/queue"
)

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

func (m *modelled) promote(t *rapid.T) {
	got, err := m.long.Promote(m.ctx)
	require.NoError(t, err)
	require.Equal(t, m.model.promote(queue.MaxBatch, got.Now.UnixMilli()), got.Moved)
	due, scheduled := first(m.model.scheduled)
	requireTime(t, due, scheduled, time.Time.UnixMilli, got.NextDue.Get)
}

func (m *modelled) reclaim(t *rapid.T) {
	got, err := m.long.Reclaim(m.ctx)
	require.NoError(t, err)
	returned, buried, cancelled := m.model.reclaim(modelFailures, got.Now)
	require.Equal(t, cancelled, got.Cancelled)
	require.Equal(t, returned, got.Returned)
	require.Equal(t, buried, got.Buried)
	lapse, leased := first(m.model.leased)
	requireTime(t, lapse, leased, time.Time.UnixMicro, got.NextLapse.Get)
}

// take returns the jobs that a take should lease until the fence, and how many entries it drops.
func (m *queueModel) take(max int, fence, now int64) (out []slot, dropped int) {
	if m.paused {
		return nil, 0
	}
	m.promote(max, now)
	for round := 0; round < 8 && len(out) < max; round++ {
		part := m.ready[:min(len(m.ready), max-len(out))]
		m.ready = slices.Clone(m.ready[len(part):])
		for _, s := range part {
			if m.failures[s.id] == "x" {
				delete(m.failures, s.id)
				delete(m.bodies, s.id)
				dropped++
				continue
			}
			if m.unmark(s.id) {
				dropped++
				continue
			}
			m.leased[s.id] = exactly(fence)
			out = append(out, s)
		}
	}
	return out, dropped
}

func (m *queueModel) promote(max int, now int64) int {
	ids := inOrder(m.scheduled, now)
	ids = ids[:min(len(ids), max)]
	for _, id := range ids {
		delete(m.scheduled, id)
		m.ready = append(m.ready, slot{id, exactly(now)})
	}
	return len(ids)
}

func (m *queueModel) reclaim(maxFailures int, at time.Time) (returned, buried, cancelled int) {
	now := at.UnixMilli()
	var head []slot
	for _, id := range inOrder(m.leased, at.UnixMicro()) {
		delete(m.leased, id)
		if m.failures[id] == "x" {
			m.end(id)
			cancelled++
			continue
		}
		died := m.failures[id+"\n"] == "lease over"
		count := m.fail(id, "lease over")
		switch {
		case count >= maxFailures:
			m.bury(id, exactly(now))
			buried++
		case died && count > 1:
			m.scheduled[id] = exactly(now + 1 + 1000<<(count-2))
			returned++
		default:
			head = append(head, slot{id, exactly(now)})
			returned++
		}
	}
	m.ready = append(head, m.ready...)
	return returned, buried, cancelled
}
