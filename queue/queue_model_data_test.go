package queue_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/luatomic/luatomic/queue"
)

// queueModel is what the keys of a queue should hold. Its methods are the operations,
// at a time that the server told.
type queueModel struct {
	ready                   []slot
	scheduled, leased, dead map[string]span
	bodies                  map[string]string
	failures                map[string]string // id to count, or x; id and a line feed to the reason
	holds                   map[string]string // k:name to id, j:id to name
	ends                    map[string]int64  // name to the end of its hold
	paused                  bool
	limit, deadBytes        int
	counted                 bool // deadBytes has been written

	receipts map[string]queue.Pushed
}

// slot is an entry of the ready list.
type slot struct {
	id string
	at span
}

// span is a time in ms, in us for a lease, that lies between two others: the server
// does not always tell when an operation ran.
type span struct{ from, to int64 }

func exactly(at int64) span { return span{at, at} }

func (s span) plus(d int64) span { return span{s.from + d, s.to + d} }

func newQueueModel() *queueModel {
	return &queueModel{
		scheduled: make(map[string]span), leased: make(map[string]span), dead: make(map[string]span),
		bodies: make(map[string]string), failures: make(map[string]string),
		holds: make(map[string]string), ends: make(map[string]int64),
		receipts: make(map[string]queue.Pushed),
	}
}

const noEnd = 1<<53 - 1

func (m *queueModel) holder(name string, now int64) string {
	if id := m.holds["k:"+name]; id != "" && m.ends[name] > now {
		return id
	}
	return ""
}

// push answers what a push of the jobs should; their ids are set. fresh says that all
// ids are new.
func (m *queueModel) push(jobs []queue.Job, fresh bool, now int64) (out queue.Pushed, full bool) {
	seen, held := make(map[string]bool), make(map[string]string)
	var in []queue.Job
	for i, j := range jobs {
		known := ""
		if _, there := m.bodies[j.ID]; !fresh && (seen[j.ID] || there) {
			known = j.ID
		} else if j.Unique != "" {
			known = cmp.Or(held[j.Unique], m.holder(j.Unique, now))
		}
		if known != "" {
			out.Duplicates = append(out.Duplicates, queue.Duplicate{Position: i, ID: known})
			continue
		}
		seen[j.ID] = true
		if j.Unique != "" {
			held[j.Unique] = j.ID
		}
		in = append(in, j)
	}
	if m.limit > 0 && len(m.ready)+len(m.scheduled)+len(m.leased)+len(in) > m.limit {
		return queue.Pushed{}, true
	}
	for _, j := range in {
		m.bodies[j.ID] = string(j.Body)
		if j.Unique != "" {
			m.holds["k:"+j.Unique], m.holds["j:"+j.ID] = j.ID, j.Unique
			m.ends[j.Unique] = noEnd
			if j.UniqueTTL > 0 {
				m.ends[j.Unique] = now + j.UniqueTTL.Milliseconds()
			}
		}
		switch {
		case j.Delay > 0:
			m.scheduled[j.ID] = exactly(now + j.Delay.Milliseconds())
			out.Scheduled++
		case !j.At.IsZero() && j.At.UnixMilli() > now:
			m.scheduled[j.ID] = exactly(j.At.UnixMilli())
			out.Scheduled++
		default:
			m.ready = append(m.ready, slot{j.ID, exactly(now)})
			out.Ready++
		}
	}
	return out, false
}

// inOrder are the ids of a zset by time, then by name, up to a time.
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

func (m *queueModel) promote(max int, now int64) int {
	ids := inOrder(m.scheduled, now)
	ids = ids[:min(len(ids), max)]
	for _, id := range ids {
		delete(m.scheduled, id)
		m.ready = append(m.ready, slot{id, exactly(now)})
	}
	return len(ids)
}

// take answers the jobs that a take should lease until the fence, and how many
// entries it drops.
func (m *queueModel) take(max int, fence, now int64) (out []slot, dropped int) {
	if m.paused {
		return nil, 0
	}
	m.promote(max, now)
	for round := 0; round < 8 && len(out) == 0; round++ {
		part := m.ready[:min(len(m.ready), max)]
		m.ready = slices.Clone(m.ready[len(part):])
		for _, s := range part {
			if m.failures[s.id] == "x" {
				delete(m.failures, s.id)
				delete(m.bodies, s.id)
				dropped++
				continue
			}
			m.leased[s.id] = exactly(fence)
			out = append(out, s)
		}
	}
	return out, dropped
}

func (m *queueModel) holdsLease(id string, fence int64) bool {
	at, ok := m.leased[id]
	return ok && at == exactly(fence)
}

// release frees the unique name of a job, unless another job has it by now.
func (m *queueModel) release(id string) {
	name := m.holds["j:"+id]
	if name != "" && m.holds["k:"+name] == id {
		delete(m.holds, "k:"+name)
		delete(m.ends, name)
	}
	delete(m.holds, "j:"+id)
}

// fences are those of some deliveries before the call, in its order.
type fences []struct {
	id    string
	fence int64
}

// ack answers the ids whose lease is lost.
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
		m.release(id)
		m.forget(id)
		delete(m.bodies, id)
		delete(m.leased, id)
	}
	return lost
}

func (m *queueModel) forget(id string) {
	delete(m.failures, id)
	delete(m.failures, id+"\n")
}

// nack answers the ids whose lease is lost. A delay below 0 means the dead set; no
// reason means that it is not counted.
func (m *queueModel) nack(ds fences, delay int64, reason string, now span) (lost []string) {
	for _, d := range ds {
		if !m.holdsLease(d.id, d.fence) {
			lost = append(lost, d.id)
			continue
		}
		delete(m.leased, d.id)
		if reason != "" {
			m.fail(d.id, reason)
		}
		switch {
		case delay < 0:
			m.bury(d.id, now)
		case delay > 0:
			m.scheduled[d.id] = now.plus(delay)
		default:
			m.ready = append(m.ready, slot{d.id, now})
		}
	}
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
	m.counted = true
	m.release(id)
}

// dig takes a job out of the dead set.
func (m *queueModel) dig(id string) {
	delete(m.dead, id)
	m.deadBytes -= len(m.bodies[id])
	m.counted = true
	m.forget(id)
}

// extend answers the ids whose lease is lost, and gives the others their new end.
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

func (m *queueModel) reclaim(maxFailures int, at time.Time) (returned, buried int) {
	now := at.UnixMilli()
	for _, id := range inOrder(m.leased, at.UnixMicro()) {
		delete(m.leased, id)
		if m.fail(id, "lease over") >= maxFailures {
			m.bury(id, exactly(now))
			buried++
		} else {
			m.ready = slices.Insert(m.ready, 0, slot{id, exactly(now)})
			returned++
		}
	}
	return returned, buried
}

func (m *queueModel) cancel(id string) queue.State {
	if _, there := m.bodies[id]; !there || m.failures[id] == "x" {
		return queue.Absent
	}
	if _, ok := m.leased[id]; ok {
		return queue.Leased
	}
	defer m.release(id)
	if _, ok := m.scheduled[id]; ok {
		delete(m.scheduled, id)
		delete(m.bodies, id)
		m.forget(id)
		return queue.Scheduled
	}
	if _, ok := m.dead[id]; ok {
		m.dig(id)
		delete(m.bodies, id)
		return queue.Dead
	}
	m.forget(id)
	m.failures[id], m.bodies[id] = "x", ""
	return queue.Ready
}

func (m *queueModel) reschedule(id string, at int64, earlier, later bool) (found, moved bool) {
	old, found := m.scheduled[id]
	if moved = found && !(earlier && at >= old.from) && !(later && at <= old.from); moved {
		m.scheduled[id] = exactly(at)
	}
	return found, moved
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

// control is the hash of the settings.
func (m *queueModel) control() map[string]string {
	out := make(map[string]string)
	if m.paused {
		out["paused"] = "1"
	}
	if m.limit > 0 {
		out["limit"] = strconv.Itoa(m.limit)
	}
	if m.counted {
		out["dead_bytes"] = strconv.Itoa(m.deadBytes)
	}
	return out
}

// adopt compares the times of a zset and keeps those that the server has.
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
