package queue_test

import (
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/luatomic/luatomic/queue"
)

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

func (m *queueModel) requeue(ids []string, now span) (n int) {
	if len(ids) == 0 {
		ids = inOrder(m.dead, noEnd)
	}
	for _, id := range ids {
		if _, ok := m.dead[id]; ok {
			m.dig(id)
			m.ready = append(m.ready, slot{id, now})
			n++
		}
	}
	return n
}

func (m *queueModel) trim(keep int) (n int) {
	for _, id := range inOrder(m.dead, noEnd) {
		if len(m.dead) <= keep {
			break
		}
		m.dig(id)
		delete(m.bodies, id)
		n++
	}
	return n
}

// dig removes a job from the dead set.
func (m *queueModel) dig(id string) {
	delete(m.dead, id)
	m.deadBytes -= len(m.bodies[id])
	m.counted = true
	m.forget(id)
}
