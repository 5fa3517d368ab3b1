package queue_test

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/luatomic/luatomic/queue"
)

// draw chooses some deliveries. Their leases may have ended, and one may come twice.
func (m *modelled) draw(t *rapid.T) (ds []*queue.Delivery, before fences) {
	if len(m.taken) == 0 {
		t.Skip("none taken")
	}
	from := m.taken
	if rapid.IntRange(0, 3).Draw(t, "stale") > 0 {
		from = slices.DeleteFunc(slices.Clone(m.taken), func(d *queue.Delivery) bool {
			return !m.model.holdsLease(d.ID, d.Deadline().UnixMicro())
		})
	}
	if len(from) == 0 {
		from = m.taken
	}
	ds = rapid.SliceOfN(rapid.SampledFrom(from), 1, 3).Draw(t, "deliveries")
	for _, d := range ds {
		before = append(before, fenced{d.ID, d.Deadline().UnixMicro(), d.EnqueuedAt.UnixMilli()})
	}
	return ds, before
}

// requireLost wants the error that names these ids, or no error.
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
	cancelled := false
	for i, d := range ds {
		m.stopped[d] = m.stopped[d] || m.model.holdsLease(d.ID, before[i].fence) && m.model.failures[d.ID] == "x"
		cancelled = cancelled || m.stopped[d]
	}
	require.Equal(t, cancelled, errors.Is(err, queue.ErrCancelled))
	lost := m.model.extend(before, span{from, m.time(t).UnixMicro()}.plus(lease.Microseconds()))
	if cancelled && len(lost) == 0 {
		require.NotErrorIs(t, err, queue.ErrLeaseLost)
		return
	}
	requireLost(t, lost, err)
}

func (m *queueModel) holdsLease(id string, fence int64) bool {
	at, ok := m.leased[id]
	return ok && at == exactly(fence)
}

// release releases the unique name of a job, unless another job holds it now.
func (m *queueModel) release(id string) {
	name := m.holds["j:"+id]
	if name != "" && m.holds["k:"+name] == id {
		delete(m.holds, "k:"+name)
		delete(m.ends, name)
	}
	delete(m.holds, "j:"+id)
}

// fences are those of some deliveries before the call, in its order.
type fences []fenced

type fenced struct {
	id              string
	fence, enqueued int64
}

// ack returns the ids whose lease is lost.
func (m *queueModel) ack(ds fences) (lost []string) {
	var done []string
	for _, d := range ds {
		if m.holdsLease(d.id, d.fence) {
			done = append(done, d.id)
		} else if _, there := m.bodies[d.id]; there {
			lost = append(lost, d.id)
		}
	}
	for _, id := range done {
		m.end(id)
		delete(m.leased, id)
	}
	return lost
}

// end deletes a job that was leased.
func (m *queueModel) end(id string) {
	m.release(id)
	m.forget(id)
	delete(m.bodies, id)
}

func (m *queueModel) forget(id string) {
	delete(m.failures, id)
	delete(m.failures, id+"\n")
}

// nack returns the ids whose lease is lost. A delay below 0 means the dead set. An empty reason means that no
// failure is counted.
func (m *queueModel) nack(ds fences, delay int64, reason string, now span) (lost []string) {
	var head []slot
	for _, d := range ds {
		if !m.holdsLease(d.id, d.fence) {
			lost = append(lost, d.id)
			continue
		}
		delete(m.leased, d.id)
		if m.failures[d.id] == "x" {
			m.end(d.id)
			continue
		}
		if reason != "" {
			m.fail(d.id, reason)
		}
		switch {
		case delay < 0:
			m.bury(d.id, now)
		case delay > 0:
			m.scheduled[d.id] = now.plus(delay + 1)
		case reason == "":
			head = append(head, slot{d.id, exactly(d.enqueued)})
		default:
			m.ready = append(m.ready, slot{d.id, now})
		}
	}
	m.ready = append(head, m.ready...)
	return lost
}

func (m *queueModel) fail(id, reason string) int {
	n, _ := strconv.Atoi(m.failures[id])
	m.failures[id], m.failures[id+"\n"] = strconv.Itoa(n+1), reason
	return n + 1
}

func (m *queueModel) bury(id string, now span) {
	m.dead[id] = now
	m.deadBytes += len(m.bodies[id])
	name, named := m.holds["j:"+id]
	m.release(id)
	if named {
		m.holds["j:"+id] = name // remembered for a requeue
	}
}

// extend returns the ids whose lease is lost, and sets the new end of the others.
func (m *queueModel) extend(ds fences, end span) (lost []string) {
	var kept []string
	for _, d := range ds {
		if m.holdsLease(d.id, d.fence) {
			kept = append(kept, d.id)
		} else {
			lost = append(lost, d.id)
		}
	}
	for _, id := range kept {
		m.leased[id] = end
	}
	return lost
}
