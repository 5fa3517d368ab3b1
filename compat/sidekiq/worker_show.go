package sidekiq

import (
	"context"
	"encoding/json"
	"os"
	"strconv"
	"time"
)

// showFor is how long the Busy page shows a process after its last heartbeat.
const showFor = time.Minute

// show writes what Sidekiq's Busy page reads of a process: its entry in processes, a hash of that name, and its
// running jobs.
func (w *worker) show(ctx context.Context) error {
	jobs := w.jobsAsShown()
	work := w.process + w.workSuffix()
	p := w.d.client.TxPipeline()
	p.SAdd(ctx, w.d.key("processes"), w.process)
	p.HSet(ctx, w.d.key(w.process), "info", w.info(), "concurrency", w.o.Concurrency, "busy", len(jobs)/2,
		"beat", strconv.FormatFloat(float64(time.Now().UnixMicro())/1e6, 'f', -1, 64), "rtt_us", 0, "quiet", "false", "rss", 0)
	p.Expire(ctx, w.d.key(w.process), showFor)
	p.Unlink(ctx, w.d.key(work))
	if len(jobs) > 0 {
		p.HSet(ctx, w.d.key(work), jobs...)
		p.Expire(ctx, w.d.key(work), showFor)
	}
	_, err := p.Exec(ctx)
	return err
}

// hide removes the process from the page.
func (w *worker) hide(ctx context.Context) error {
	p := w.d.client.TxPipeline()
	p.SRem(ctx, w.d.key("processes"), w.process)
	p.Unlink(ctx, w.d.key(w.process), w.d.key(w.process+w.workSuffix()), w.d.key(w.process+"-signals"))
	_, err := p.Exec(ctx)
	return err
}

// workSuffix is the suffix of the key of running jobs, renamed in Sidekiq 7.
func (w *worker) workSuffix() string {
	if w.d.version < V7 {
		return ":workers"
	}
	return ":work"
}

func (w *worker) jobsAsShown() []any {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []any
	for id, j := range w.running {
		entry, err := json.Marshal(map[string]any{
			"queue": j.job.Queue, "payload": string(j.job.Payload), "run_at": j.since.Unix(),
		})
		if err == nil {
			out = append(out, strconv.FormatInt(id, 36), entry)
		}
	}
	return out
}

// info is the constant part of the entry. An embedded process is one that the page cannot stop.
func (w *worker) info() []byte {
	host, _ := os.Hostname()
	names, weights := []string{}, map[string]int{}
	for _, q := range w.o.Queues {
		names = append(names, q.Name)
		weights[q.Name] = q.Weight
	}
	capsule := map[string]any{"concurrency": w.o.Concurrency, "mode": w.mode(), "weights": weights}
	text, err := json.Marshal(map[string]any{
		"hostname": host, "started_at": float64(w.began.UnixMicro()) / 1e6, "pid": os.Getpid(), "tag": "luatomic",
		"concurrency": w.o.Concurrency, "queues": names, "weights": []any{weights}, "labels": []string{"go"},
		"identity": w.process, "version": "luatomic", "embedded": true, "capsules": map[string]any{"default": capsule},
	})
	if err != nil {
		return nil // every value in it has a JSON form
	}
	return text
}

func (w *worker) mode() string {
	if w.weighted {
		return "weighted"
	}
	return "strict"
}
