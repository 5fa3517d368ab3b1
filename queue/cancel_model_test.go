package queue_test

import (
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/luatomic/luatomic/queue"
)

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
	id := drawID.Draw(t, "id")
	at := rapid.SampledFrom([]int64{1, m.now(t) + 1, m.now(t) + time.Hour.Milliseconds()}).Draw(t, "at")
	got, err := m.long.Reschedule(m.ctx, id, time.UnixMilli(at))
	require.NoError(t, err)
	found := m.model.reschedule(id, at)
	require.Equal(t, found, got.Found)
	if found {
		require.Equal(t, m.model.scheduled[id], exactly(got.Due.UnixMilli()))
	}
}

func (m *queueModel) cancel(id string) queue.State {
	if _, ok := m.leased[id]; ok {
		m.failures[id] = "x"
		return queue.Leased
	}
	if _, there := m.bodies[id]; !there || m.failures[id] == "x" {
		return queue.Absent
	}
	defer m.release(id)
	if _, ok := m.scheduled[id]; ok {
		delete(m.scheduled, id)
		delete(m.bodies, id)
		m.forget(id)
		return queue.Scheduled
	}
	if _, ok := m.dead[id]; ok {
		m.deleteDead(id)
		return queue.Dead
	}
	m.forget(id)
	m.failures[id], m.bodies[id] = "x", ""
	return queue.Ready
}

func (m *queueModel) reschedule(id string, at int64) (found bool) {
	if _, found = m.scheduled[id]; found {
		m.scheduled[id] = exactly(at)
	}
	return found
}
