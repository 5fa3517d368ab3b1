package queue_test

import (
	"strings"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/luatomic/luatomic/queue"
)

func (m *modelled) buryJobs(t *rapid.T) {
	ids := rapid.SliceOfN(drawID, 1, 3).Draw(t, "ids")
	from := m.now(t)
	got, err := m.long.BuryJobs(m.ctx, "by hand", ids...)
	require.NoError(t, err)
	now := span{from, m.now(t)}
	want := make([]queue.State, len(ids))
	for i, id := range ids {
		want[i] = m.model.buryJob(id, now)
	}
	require.Equal(t, want, got)
}

func (m *queueModel) buryJob(id string, now span) queue.State {
	if _, ok := m.leased[id]; ok {
		return queue.Leased
	}
	if _, ok := m.dead[id]; ok {
		return queue.Dead
	}
	if _, there := m.bodies[id]; !there || m.failures[id] == "x" {
		return queue.Absent
	}
	m.bury(id, now)
	m.failures[id+"\n"] = "by hand"
	if _, ok := m.scheduled[id]; ok {
		delete(m.scheduled, id)
		return queue.Scheduled
	}
	if m.failures[id] == "" {
		m.failures[id] = "0"
	}
	m.failures[id] = "b" + m.failures[id]
	return queue.Ready
}

// unmark takes the mark of a job that was buried while ready, and reports whether it had one.
func (m *queueModel) unmark(id string) bool {
	count, marked := strings.CutPrefix(m.failures[id], "b")
	if marked {
		m.failures[id] = count
	}
	if count == "0" {
		delete(m.failures, id)
	}
	return marked
}

// deleteDead deletes a dead job, but for the mark that an entry of it in ready needs.
func (m *queueModel) deleteDead(id string) {
	marked := m.unmark(id)
	m.dig(id)
	delete(m.bodies, id)
	if marked {
		m.failures[id], m.bodies[id] = "x", ""
	}
}
