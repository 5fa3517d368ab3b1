package web

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/operate"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// everyJob looks up all jobs of a state while consumers take some and promoters move others.
type everyJob struct {
	queue *queue.Queue
	ids   *operate.Reader
	state queue.State
	means func(at time.Time) bool // whether a job of that time is to be looked up

	step  int       // how many jobs are looked up at once
	page  []timedID // what is read and not looked up
	found int       // jobs that were looked up and are in the state; without a filter those that were named
	bytes int       // of their bodies
	rank  int       // of the first job of the last look
	last  timedID   // the last one that was looked up or named
}

// timedID is a job with its time in the list of its state.
type timedID struct {
	id   string
	at   time.Time
	rank int
}

func (h *handler) everyJob(of *queue.Queue, state queue.State, means func(time.Time) bool) (*everyJob, error) {
	k, err := keys.NewQueue(h.opts.Prefix, of.Tag(), of.Name())
	e := &everyJob{queue: of, state: state, means: means, step: changeStep}
	switch state {
	case queue.Ready:
		e.ids = operate.ReadList(h.writer, k.Ready)
	case queue.Scheduled:
		e.ids = operate.ReadSet(h.writer, k.Scheduled)
	default:
		e.ids = operate.ReadSet(h.writer, k.Dead)
	}
	return e, err
}

func (e *everyJob) ended() bool { return e.ids.Over() && len(e.page) == 0 }

// passed is how many entries of the list of ready jobs need no second look. A job that was cancelled or buried keeps
// its entry, and a request that continues would spend its time on those.
func (e *everyJob) passed() int {
	switch {
	case e.state != queue.Ready:
		return 0
	case len(e.page) > 0:
		return e.page[0].rank
	}
	return e.ids.Passed()
}

// place is where another request goes on: behind the jobs that this one is done with. A list of ready jobs has its
// own, see passed.
func (e *everyJob) place() string {
	if e.state == queue.Ready || e.last.id == "" {
		return ""
	}
	return strconv.FormatInt(e.last.at.UnixMilli(), 10) + ":" + base64.RawURLEncoding.EncodeToString([]byte(e.last.id))
}

// behind goes on from a place, where there is one.
func (e *everyJob) behind(place string) error {
	stamp, text, _ := strings.Cut(place, ":")
	at, bad := strconv.ParseInt(stamp, 10, 64)
	id, err := base64.RawURLEncoding.DecodeString(text)
	switch {
	case place == "" || e.state == queue.Ready:
		return nil
	case bad != nil || err != nil || len(id) == 0:
		return faultf(http.StatusBadRequest, "Go back and begin again.", "%q is no place in the list.",
			shown(128, place))
	}
	e.last = timedID{id: string(id), at: time.UnixMilli(at)}
	e.ids.Behind(operate.Job{ID: string(id), Score: at})
	return nil
}

// next looks the next jobs up, at most a step and fewer where their bodies are large, and returns those that are in the
// state.
func (e *everyJob) next(ctx context.Context) ([]queue.Peeked, error) {
	if err := e.read(ctx); err != nil {
		return nil, err
	}
	n := min(e.step, len(e.page))
	if e.bytes > 0 {
		n = min(n, max(stepBytes*e.found/e.bytes, 1))
	}
	asked := e.page[:n]
	e.page = e.page[n:]
	if n > 0 {
		e.rank, e.last = asked[0].rank, asked[n-1]
	}
	names := make([]string, n)
	for i, j := range asked {
		names[i] = j.id
	}
	all, err := e.queue.Find(ctx, names...)
	if err != nil && !errors.Is(err, lua.ErrTooLarge) { // a job whose id no call can name holds up no other
		return nil, err
	}
	var jobs []queue.Peeked
	for i, f := range all {
		if f.State != e.state { // it has left, or was cancelled or buried and has its entry in the list still
			continue
		}
		if f.At.IsZero() {
			f.At = asked[i].at
		}
		e.found, e.bytes = e.found+1, e.bytes+len(f.Body)
		jobs = append(jobs, f.Peeked)
	}
	return jobs, nil
}

// some are up to most of the next jobs that match the filter. What they leave of those that it looked up comes again.
// Without a filter no job is looked up, as its body would come along: the change itself passes over one that has left
// the state.
func (e *everyJob) some(ctx context.Context, f *jobFilter, most int) (found []string, _ error) {
	if f.none() {
		return e.any(ctx, most)
	}
	jobs, err := e.next(ctx)
	var rest []timedID
	for i := range jobs {
		switch j := &jobs[i]; {
		case !f.matches(j):
		case len(found) < most:
			found = append(found, j.ID)
		default:
			rest = append(rest, timedID{j.ID, j.At, e.rank})
		}
	}
	e.page = append(rest, e.page...)
	return found, err
}

// any are up to most of the next jobs, at most a step.
func (e *everyJob) any(ctx context.Context, most int) (found []string, _ error) {
	err := e.read(ctx)
	n := min(e.step, most, len(e.page))
	for _, j := range e.page[:n] {
		found = append(found, j.id)
	}
	if n > 0 {
		e.last = e.page[n-1]
	}
	e.page, e.found = e.page[n:], e.found+n
	return found, err
}

// read reads a page of ids, where none is left of the page before.
func (e *everyJob) read(ctx context.Context) error {
	if len(e.page) > 0 {
		return nil
	}
	page, err := e.ids.Next(ctx)
	for _, j := range page {
		if at := time.UnixMilli(j.Score); e.means(at) {
			e.page = append(e.page, timedID{j.ID, at, j.Rank})
		}
	}
	return err
}
