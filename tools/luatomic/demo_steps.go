package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

type serverStep struct {
	Step   int     `json:"step"`
	Name   string  `json:"name"`
	Server string  `json:"server"`
	Where  string  `json:"where"`
	PingMS float64 `json:"ping_ms"`
}

func (d *demo) stepServer() error {
	info, _ := d.client.Info(d.ctx, "server").Result() // may be refused; the PING decides
	version := serverVersion(info)
	ping, err := d.ping()
	if err != nil {
		return err
	}
	d.head(1, "The server")
	d.say("%s: %s.", version, d.where)
	d.say("A PING takes %.3f ms, the least that any call to it can take.", millis(ping))
	return d.s.emit(serverStep{1, "server", version, d.where, millis(ping)})
}

const unknownVersion = "A server of unknown version"

// serverVersion reads the reply of INFO server.
func serverVersion(info string) string {
	version := unknownVersion
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "valkey_version": // comes with a redis_version before it, for old clients
			return "Valkey " + value
		case "redis_version":
			version = "Redis " + value
		}
	}
	return version
}

// ping is the median of some round trips.
func (d *demo) ping() (time.Duration, error) {
	trips := make([]time.Duration, 21)
	for i := range trips {
		start := time.Now()
		if err := d.client.Ping(d.ctx).Err(); err != nil {
			return 0, err
		}
		trips[i] = time.Since(start)
	}
	slices.Sort(trips)
	return trips[len(trips)/2], nil
}

type pushStep struct {
	Step       int     `json:"step"`
	Name       string  `json:"name"`
	Batches    int     `json:"batches"`
	Ready      int     `json:"ready"`
	Scheduled  int     `json:"scheduled"`
	Duplicates int     `json:"duplicates"`
	AddedAgain int     `json:"added_again"`
	MS         float64 `json:"ms"`
}

func (d *demo) stepPush() error {
	d.head(2, "Push")
	d.say("%d jobs go in, all of a batch or none of it. Each batch is one script call with a token,", len(d.jobs))
	d.say("so a batch whose reply was lost can be sent again.")
	out := pushStep{Step: 2, Name: "push"}
	start := time.Now()
	var again []func() error
	for jobs := range d.parts() {
		out.Batches++
		token := fmt.Sprintf("batch-%d", out.Batches)
		p, err := d.pushPart(token, jobs)
		if err != nil {
			return err
		}
		out.Ready, out.Scheduled, out.Duplicates = out.Ready+p.Ready, out.Scheduled+p.Scheduled,
			out.Duplicates+len(p.Duplicates)
		again = append(again, func() error {
			_, err := d.queue.PushOnce(d.ctx, token, jobs...)
			return err
		})
	}
	out.MS = millis(time.Since(start))
	d.say("%d are ready, %d wait for their time (%.1f ms).", out.Ready, out.Scheduled, out.MS)
	for _, repeat := range again {
		if err := repeat(); err != nil {
			return err
		}
	}
	st, err := d.queue.Stats(d.ctx)
	if err != nil {
		return err
	}
	out.AddedAgain = st.Ready + st.Scheduled - len(d.body)
	if out.AddedAgain != 0 {
		return broken("%d jobs in the queue after %d were pushed twice under one token", st.Ready+st.Scheduled,
			len(d.body))
	}
	d.say("The same push again, under the same tokens: the queue still holds %d. Nothing is added twice.",
		st.Ready+st.Scheduled)
	return d.s.emit(out)
}

// parts are the batches within the limits of a call.
func (d *demo) parts() func(yield func([]queue.Job) bool) {
	return func(yield func([]queue.Job) bool) {
		first, size := 0, 0
		for i := range d.jobs {
			n := jobSize(&d.jobs[i])
			if i-first == queue.MaxBatch || i > first && size+n > batchRoom {
				if !yield(d.jobs[first:i]) {
					return
				}
				first, size = i, 0
			}
			size += n
		}
		yield(d.jobs[first:])
	}
}

// pushPart pushes and notes what must come out again: the jobs get the ids that
// were made for them, so that the repeat is the same push.
func (d *demo) pushPart(token string, jobs []queue.Job) (queue.Pushed, error) {
	p, err := d.queue.PushOnce(d.ctx, token, jobs...)
	d.began = d.began || !errors.Is(err, lua.ErrNotExecuted)
	if err != nil {
		return p, err
	}
	for i := range jobs {
		job := &jobs[i]
		job.ID = p.IDs[i]
		if slices.ContainsFunc(p.Duplicates, func(d queue.Duplicate) bool { return d.Position == i }) {
			continue
		}
		d.body[job.ID] = string(job.Body)
		due := job.At
		if job.Delay > 0 {
			due = p.Now.Add(job.Delay)
		}
		if due.After(p.Now) {
			d.due[job.ID] = due
		}
	}
	return p, nil
}

type promoteStep struct {
	Step      int     `json:"step"`
	Name      string  `json:"name"`
	Moved     int     `json:"moved"`
	Early     int     `json:"early"`
	LateMSP50 float64 `json:"late_ms_p50"`
	LateMSMax float64 `json:"late_ms_max"`
}

func (d *demo) stepPromote() error {
	d.head(3, "Move what is due")
	out := promoteStep{Step: 3, Name: "promote"}
	dues := make([]time.Time, 0, len(d.due))
	for _, at := range d.due {
		dues = append(dues, at)
	}
	slices.SortFunc(dues, time.Time.Compare)
	if len(dues) > 0 {
		d.say("A poller sleeps until the next job is due. Then one script moves it from scheduled to ready:")
		d.say("at no moment is it in neither, so a crash loses nothing, nor in both.")
		if last := time.Until(dues[len(dues)-1]); last > 5*time.Second {
			d.say("The last one is due in %v; Ctrl-C ends the demo.", last.Round(time.Second))
		}
	}
	late, err := d.poll(dues)
	if err != nil {
		return err
	}
	slices.Sort(late)
	for _, l := range late {
		if l < 0 {
			out.Early++
		}
	}
	if out.Moved = len(late); out.Moved > 0 {
		out.LateMSP50, out.LateMSMax = millis(late[len(late)/2]), millis(late[len(late)-1])
	}
	if out.Moved != len(dues) || out.Early > 0 {
		return broken("%d of %d delayed jobs were moved, %d of them early", out.Moved, len(dues), out.Early)
	}
	d.say("%d moved, %d early. Late by %.0f ms in the middle and %.0f ms at most, by the server's clock.",
		out.Moved, out.Early, out.LateMSP50, out.LateMSMax)
	return d.s.emit(out)
}

// poll runs a poller until nothing is scheduled. The earliest jobs move first, so
// the sorted due times show how late each was.
func (d *demo) poll(dues []time.Time) (late []time.Duration, err error) {
	if len(dues) == 0 {
		return nil, nil
	}
	all := errors.New("all moved")
	ctx, cancel := context.WithCancelCause(d.ctx)
	defer cancel(nil)
	poller := queue.NewPoller(&queue.PollerOptions{
		OnPromote: func(_ *queue.Queue, p queue.Promoted) {
			for range p.Moved {
				if len(late) < len(dues) {
					late = append(late, p.Now.Sub(dues[len(late)]))
				}
			}
			if _, more := p.NextDue.Get(); !more {
				cancel(all)
			}
		},
		OnError: func(_ *queue.Queue, err error) { cancel(err) },
	}, d.queue)
	if err := poller.Run(ctx); err != all {
		return nil, err
	}
	return late, nil
}
