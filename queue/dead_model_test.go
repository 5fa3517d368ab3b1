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
	n, held := m.model.requeue(ids, span{from, m.now(t)})
	require.Equal(t, n, got)
	if len(held) == 0 {
		require.NoError(t, err)
		return
	}
	var e *queue.NameHeldError
	require.ErrorAs(t, err, &e)
	require.Equal(t, held, e.Jobs)
}

func (m *modelled) trim(t *rapid.T) {
	keep := rapid.IntRange(1, 3).Draw(t, "keep")
	got, err := m.long.Trim(m.ctx, queue.DeadLimits{Jobs: keep})
	require.NoError(t, err)
	require.Equal(t, m.model.trim(keep), got)
}

func (m *queueModel) requeue(ids []string, now span) (n int, held []queue.NameHeld) {
	if len(ids) == 0 {
		ids = inOrder(m.dead, noEnd)
	}
	for _, id := range ids {
		if _, ok := m.dead[id]; !ok {
			continue
		}
		if name := m.holds["j:"+id]; name != "" {
			if holder := m.holder(name, now.from); holder != "" && holder != id {
				held = append(held, queue.NameHeld{ID: id, Holder: holder})
				continue
			}
			m.holds["k:"+name], m.ends[name] = id, noEnd
		}
		if !m.unmark(id) {
			m.ready = append(m.ready, slot{id, now})
		}
		m.dig(id)
		n++
	}
	return n, held
}

func (m *queueModel) trim(keep int) (n int) {
	for _, id := range inOrder(m.dead, noEnd) {
		if len(m.dead) <= keep {
			break
		}
		m.deleteDead(id)
		delete(m.holds, "j:"+id)
		n++
	}
	return n
}

// dig removes a job from the dead set.
func (m *queueModel) dig(id string) {
	delete(m.dead, id)
	m.deadBytes -= len(m.bodies[id])
	m.forget(id)
}
