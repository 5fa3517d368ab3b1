package web

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/queue"
)

// jobRow is a job as a list shows it.
type jobRow struct {
	ID       show.Name         `json:"id"`
	State    string            `json:"state"`
	At       *time.Time        `json:"at"`
	Failures int               `json:"failures"`
	Kind     show.Name         `json:"kind,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Bytes    int               `json:"bytes"`
	Fence    int64             `json:"fence,omitempty"`
}

// row is the job without what the role may not see.
func (role Role) row(f queue.Found) jobRow {
	row := jobRow{ID: show.Name(f.ID), State: string(f.State), Failures: f.Failures, Kind: show.Name(f.Kind),
		Bytes: len(f.Body), Fence: f.Fence}
	if !f.At.IsZero() {
		at := written(f.At)
		row.At = &at
	}
	if role.Has(Texts) {
		row.Reason, row.Headers = f.Reason, f.Headers
	}
	return row
}

// meant says which jobs of a state a form is for. What is empty leaves none out.
type meant struct {
	Kind show.Name `json:"kind,omitempty"`
	// Text is in the id, reason, headers or body, Reason in the reason of the last failure.
	Text   string `json:"text,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Older is a duration: the job has been ready or dead for that long.
	Older string `json:"older,omitempty"`

	older time.Duration
}

func meantOf(q *request, state queue.State) (m meant, err error) {
	m = meant{Kind: show.Name(q.get("kind")), Text: q.get("text"), Reason: q.get("reason"), Older: q.get("older")}
	if m.Older == "" {
		return m, nil
	}
	if m.older, err = time.ParseDuration(m.Older); err != nil || m.older < 0 {
		return m, faultf(http.StatusBadRequest, "Write it like 90s, 10m or 2h30m.", "%q is no age.", shown(40, m.Older))
	}
	if state != queue.Ready && state != queue.Dead {
		return m, faultf(http.StatusBadRequest, "Leave the age out.", "Only ready and dead jobs have an age.")
	}
	return m, nil
}

// Filtered reports whether only some of the jobs are meant.
func (m meant) Filtered() bool { return m.Kind != "" || m.Text != "" || m.Reason != "" || m.older > 0 }

// jobFilter chooses jobs by what is in them.
type jobFilter struct {
	kind, text, reason string
	role               Role // what it may see
	body               func(kind string, body []byte) []byte
	before             time.Time // none that is ready or dead since then; zero for all
}

// none reports that no job is to be looked at.
func (f *jobFilter) none() bool {
	return f.kind == "" && f.text == "" && f.reason == "" && f.before.IsZero()
}

// matches reports whether the job has the kind, the reason, and the text in its id, reason, headers or body. What the
// role may not see does not match, or a search would show it.
func (f *jobFilter) matches(j *queue.Peeked) bool {
	switch {
	case f.kind != "" && j.Kind != f.kind,
		f.reason != "" && !(f.role.Has(Texts) && strings.Contains(j.Reason, f.reason)),
		!f.before.IsZero() && j.At.After(f.before):
		return false
	}
	if f.text == "" || strings.Contains(j.ID, f.text) {
		return true
	}
	if f.role.Has(Texts) {
		if strings.Contains(j.Reason, f.text) {
			return true
		}
		for name, value := range j.Headers {
			if strings.Contains(name, f.text) || strings.Contains(value, f.text) {
				return true
			}
		}
	}
	return f.role.Has(Bodies) && bytes.Contains(f.body(j.Kind, j.Body), []byte(f.text))
}

// jobList reads the jobs of one state, page by page: dead ones from the latest back, others from the first on. Its
// place is a rank, which stays where it is when jobs are added behind it.
type jobList struct {
	queue *queue.Queue
	state queue.State
	total int
	at    int // the next job: its rank, or of a list that is read back one more
	// checked counts the jobs that were read, bytes their bodies.
	checked, bytes int
}

// The bounds of one page, besides its size: bodies come with the jobs.
const (
	pageBytes = 8 << 20
	stepBytes = 1 << 20
	scanStep  = 200
	scanTime  = 500 * time.Millisecond
)

// next reads up to n jobs and moves on.
func (l *jobList) next(ctx context.Context, n int) ([]queue.Peeked, error) {
	if l.checked > 0 && l.bytes > 0 {
		n = min(n, max(stepBytes*l.checked/l.bytes, 1))
	}
	offset := l.at
	if l.back() {
		n = min(n, l.at)
		offset = l.at - n
	} else {
		n = min(n, l.total-l.at)
	}
	jobs, err := l.queue.Peek(ctx, l.state, offset, n)
	if err != nil {
		return nil, err
	}
	l.checked += n
	for _, j := range jobs {
		l.bytes += len(j.Body)
	}
	if !l.back() {
		l.at += n
		return jobs, nil
	}
	l.at = offset
	for i, j := 0, len(jobs)-1; i < j; i, j = i+1, j-1 {
		jobs[i], jobs[j] = jobs[j], jobs[i]
	}
	return jobs, nil
}

// back reports whether the list is read from its end.
func (l *jobList) back() bool { return l.state == queue.Dead }

func (l *jobList) ended() bool {
	if l.back() {
		return l.at <= 0
	}
	return l.at >= l.total
}

// page collects the jobs of a page. With a filter it stops where it has checked enough. So does a page that has found
// nothing: jobs that were cancelled or buried while they were ready keep their entries in the list until a take.
func (l *jobList) page(ctx context.Context, f *jobFilter) (found []queue.Peeked, err error) {
	began, step, most := time.Now(), 8, PageSize
	if !f.none() {
		step, most = scanStep, ScanJobs
	}
	for !l.ended() && len(found) < PageSize && l.checked < most && l.bytes < pageBytes && time.Since(began) < scanTime {
		jobs, err := l.next(ctx, min(step, most-l.checked))
		if err != nil {
			return nil, err
		}
		for i := range jobs {
			if f.matches(&jobs[i]) {
				found = append(found, jobs[i])
			}
		}
		step = scanStep
		if len(found) == 0 {
			most = max(most, min(l.checked+PageSize, ScanJobs))
		}
	}
	return found, nil
}
