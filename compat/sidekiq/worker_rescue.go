package sidekiq

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/lua"
)

// ErrWorkerDied reports a job whose process died while it performed the job, and not for the first time. It is in the
// retry set, or in the dead set after WorkOptions.MaxDeaths.
var ErrWorkerDied = errors.New("sidekiq: the processes that perform the job die")

// workerDied is the failure of a job with that many processes.
type workerDied int

func (e workerDied) Error() string {
	return fmt.Sprintf("%v: %d so far; look why they ended (out of memory, a crash, a kill) before it is performed "+
		"again",
		ErrWorkerDied, int(e))
}

// Is matches ErrWorkerDied.
func (e workerDied) Is(target error) bool { return target == ErrWorkerDied }

// ErrorClass is the text for error_class.
func (e workerDied) ErrorClass() string { return "WorkerDied" }

// group is the jobs of one queue in a process's hash; the last is served first.
type group struct {
	queue string
	jobs  []kept
}

// kept is a job in a process's hash.
type kept struct {
	id     int64
	rescue string    // its name among the counts of rescues
	job    *Delivery // nil if it is no job
	deaths int       // how many processes died with it, this one too
}

func (d *Dialect) rescuedKey() string { return d.key("luatomic:sidekiq:rescued") }

// rescueName is the id of a job, or a digest if that is long. Without an id it is the digest of what neither a failure
// nor a move changes.
func (d *Dialect) rescueName(j *Delivery) string {
	if j.JID != "" && len(j.JID) <= 64 {
		return j.JID
	}
	if j.JID != "" {
		return digest([]byte(j.JID))
	}
	args := canonicalPayload(j.Args, d.version)
	return digest(fmt.Appendf(nil, "%q %d %s", j.Class, j.CreatedAt.UnixMicro(), args))
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// tellApart numbers jobs of one process that have the same name: each process counts once for each of them.
func tellApart(groups []group, known map[string]int) {
	for _, g := range groups {
		for i := range g.jobs {
			name := g.jobs[i].rescue
			if known[name]++; known[name] > 1 {
				g.jobs[i].rescue = fmt.Sprintf("%s %d", name, known[name])
			}
		}
	}
}

// countDeaths notes how many processes died with each job.
func (w *worker) countDeaths(ctx context.Context, groups []group) error {
	var names []string
	for _, g := range groups {
		for _, k := range g.jobs {
			names = append(names, k.rescue)
		}
	}
	if len(names) == 0 {
		return nil
	}
	counts, err := w.d.client.HMGet(ctx, w.d.rescuedKey(), names...).Result()
	if err != nil {
		return fmt.Errorf("sidekiq: counts of rescues in %s: %w", w.d.rescuedKey(), err)
	}
	at := 0
	for _, g := range groups {
		for i := range g.jobs {
			text, _ := counts[at].(string)
			n, _ := strconv.Atoi(text) // what is no number counts as none
			g.jobs[i].deaths = n + 1
			at++
		}
	}
	return nil
}

// setAside moves the jobs whose process was not the first to die with them out of its hash and out of the groups. It
// has ended before the last when the process is alive after all, and behind the first call after the time.
func (w *worker) setAside(
	ctx context.Context, process string, groups []group, until time.Time,
) (n int, ended bool, err error) {
	if err := w.countDeaths(ctx, groups); err != nil {
		return 0, false, err
	}
	var refused []error
	for i := range groups {
		var again []kept
		groups[i].jobs, again = w.split(groups[i].jobs)
		for _, k := range again {
			r, err := w.asideOne(ctx, process, k)
			switch {
			case err != nil && answered(err):
				refused = append(refused, err)
			case err != nil || r == script.WorkerAsideResultAlive:
				return n, err == nil, errors.Join(append(refused, err)...)
			case r == script.WorkerAsideResultMoved:
				n++
				w.report(workerDied(k.deaths), k.job)
			}
			if over(until) {
				return n, true, errors.Join(refused...)
			}
		}
	}
	return n, false, errors.Join(refused...)
}

// split separates the jobs that are served next from those that are not. What is no job reaches no handler.
func (w *worker) split(jobs []kept) (next, again []kept) {
	for _, k := range jobs {
		if k.job != nil && (k.deaths > 1 || k.deaths >= w.o.MaxDeaths) {
			again = append(again, k)
		} else {
			next = append(next, k)
		}
	}
	slices.Reverse(again) // the oldest first
	return next, again
}

// asideOne moves one job to the retry set, or to the dead set.
func (w *worker) asideOne(ctx context.Context, process string, k kept) (script.WorkerAsideResult, error) {
	cause := workerDied(k.deaths)
	parts, _, err := k.job.failed(cause, w.d)
	if err != nil {
		return 0, err
	}
	p := script.WorkerAsideParams{
		Processes: w.d.processesKey(), Working: w.d.workingKey(process), Rescued: w.d.rescuedKey(),
		Process: process, ID: k.id, Jid: k.rescue, Millis: w.d.milliseconds(), Parts: parts,
	}
	if p.To = w.d.key(string(Retry)); k.deaths >= w.o.MaxDeaths {
		p.To, p.Keep, p.Max = w.d.key(string(Dead)), w.o.DeadFor, int64(w.o.MaxDead)
	} else {
		p.Delay = w.d.delay(cause, k.deaths-2)
	}
	p.Processed, p.ProcessedDay = w.d.counter("processed")
	p.Failed, p.FailedDay = w.d.counter("failed")
	return script.WorkerAside(ctx, w.d.client, p)
}

// answered reports whether an error is the server's reply, which is for this call alone.
func answered(err error) bool {
	var reply *lua.Error
	return errors.As(err, &reply) && reply.Code != ""
}
