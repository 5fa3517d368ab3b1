package queue_test

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/luatomic/luatomic/queue"
)

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
	if rapid.Bool().Draw(t, "the receipt of ended jobs is over") {
		require.NoError(t, m.c.Del(m.ctx, "{"+m.long.Name()+"}:f").Err())
	}
	m.model.ended = make(map[string]bool)
	for _, id := range m.c.ZRange(m.ctx, "{"+m.long.Name()+"}:f", 0, -1).Val() {
		m.model.ended[id] = true
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
	if first, again := m.model.receipts[token]; again && m.model.tokens[token] != m.what(jobs) {
		require.ErrorIs(t, err, queue.ErrTokenReused)
		return
	} else if again && err == nil {
		require.Equal(t, first, got)
		return
	}
	what := m.what(jobs)
	if errors.Is(err, queue.ErrFull) {
		for i := range jobs {
			if jobs[i].ID == "" {
				jobs[i].ID = fmt.Sprint("new ", i)
			}
		}
		_, full := m.model.push(jobs, fresh, before)
		require.True(t, full, "refused below the limit")
		return
	}
	require.NoError(t, err)
	for i := range jobs {
		jobs[i].ID = got.IDs[i]
	}
	want, full := m.model.push(jobs, fresh, got.Now.UnixMilli())
	require.False(t, full, "accepted above the limit")
	want.IDs, want.Now = got.IDs, got.Now
	require.Equal(t, want, got)
	if token != "" {
		m.model.receipts[token], m.model.tokens[token] = got, what
	}
}

// what returns what makes a repeat of a push.
func (m *modelled) what(jobs []queue.Job) string {
	var out []string
	for _, j := range jobs {
		out = append(out, j.ID, j.Unique, string(j.Body))
	}
	return fmt.Sprintf("%q", out)
}

const noEnd = 1<<53 - 1

func (m *queueModel) holder(name string, now int64) string {
	if id := m.holds["k:"+name]; id != "" && m.ends[name] > now {
		return id
	}
	return ""
}

// push returns what a push of the jobs should return; their ids are set. fresh says that all ids are new.
func (m *queueModel) push(jobs []queue.Job, fresh bool, now int64) (out queue.Pushed, full bool) {
	seen, held := make(map[string]bool), make(map[string]string)
	var in []queue.Job
	for i, j := range jobs {
		known := ""
		if _, there := m.bodies[j.ID]; !fresh && (seen[j.ID] || there || m.ended[j.ID]) {
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
			m.scheduled[j.ID] = exactly(now + 1 + j.Delay.Milliseconds())
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
