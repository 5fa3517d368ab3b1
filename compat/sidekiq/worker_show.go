package sidekiq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// showFor is how long the Busy page shows a process after its last heartbeat.
const showFor = time.Minute

// show writes what Sidekiq's Busy page reads of a process: its entry in processes, a hash of that name, and its
// running jobs. It reads the signals that the page's buttons have left for the process.
func (w *worker) show(ctx context.Context) error {
	jobs := w.jobsAsShown()
	key := w.d.key(w.process)
	p := w.d.client.TxPipeline()
	p.SAdd(ctx, w.d.key("processes"), w.process)
	p.HSet(ctx, key, "info", w.info(), "concurrency", w.o.Concurrency, "busy", len(jobs)/2,
		"beat", strconv.FormatFloat(float64(time.Now().UnixMicro())/1e6, 'f', -1, 64), "rtt_us", w.rtt.Microseconds(),
		"quiet", strconv.FormatBool(w.isQuiet()), "rss", residentKB())
	p.Expire(ctx, key, showFor)
	for _, running := range w.runningKeys(w.process) {
		p.Unlink(ctx, running)
		if len(jobs) > 0 {
			p.HSet(ctx, running, jobs...)
			p.Expire(ctx, running, showFor)
		}
	}
	asked := p.LRange(ctx, w.signalsKey(w.process), 0, signals-1)
	sent := time.Now()
	if cmds, err := p.Exec(ctx); err != nil {
		return fmt.Errorf("sidekiq: show %s on the Busy page: %w", w.process, named(cmds, err))
	}
	w.rtt = time.Since(sent)
	for _, signal := range asked.Val() {
		w.signalled(signal)
	}
	return nil
}

// named adds the key to an error of one command of a pipeline.
func named(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		if len(cmd.Args()) > 1 && errors.Is(cmd.Err(), err) {
			return fmt.Errorf("key %v: %w", cmd.Args()[1], err)
		}
	}
	return err
}

func (w *worker) signalsKey(process string) string { return w.d.key(process + "-signals") }

// residentKB returns the resident memory of this process in KiB; 0 where the system does not say.
func residentKB() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(status), "\nVmRSS:")
	var kb int
	_, _ = fmt.Sscan(after, &kb) // 0 when it is no number
	return kb
}

// runningKeys returns the keys of a process' running jobs: Sidekiq 6.4.2 renamed the one that all before it read.
func (w *worker) runningKeys(process string) (keys []string) {
	if w.d.version >= V6 {
		keys = append(keys, w.d.key(process+":work"))
	}
	if w.d.version <= V6 {
		keys = append(keys, w.d.key(process+":workers"))
	}
	return keys
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

// info is the constant part of the entry.
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
		"identity": w.process, "version": "luatomic", "embedded": false,
		"capsules": map[string]any{"default": capsule},
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
