package sidekiq

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
)

// Stats are the counts of a Sidekiq system.
type Stats struct {
	Scheduled, Retries, Dead int
	// Processes is the number of listed worker processes.
	Processes int
	// Processed and Failed count since the counters were reset.
	Processed, Failed int64
	// Queues are all queues, sorted by name, except those in NoLists.
	Queues []QueueStats
	// NoLists are the names of queues whose key has another type: no worker can take from them.
	NoLists []string
	// Now is the server's time.
	Now time.Time
}

// QueueStats are the counts of one queue.
type QueueStats struct {
	Name string
	Size int
	// Latency is how long the next job has waited; 0 for an empty queue, or if the job's enqueued_at is not a time.
	Latency time.Duration
}

// Stats counts the jobs of all sets and queues in one script, the first 1000 queues by name. Keys: schedule, retry,
// dead, processes, stat:processed, stat:failed, queues and each queue:<name>. Cost: 2 round trips, O(1) for each
// queue.
func (d *Dialect) Stats(ctx context.Context) (Stats, error) {
	names, err := d.client.SMembers(ctx, d.key("queues")).Result()
	if err != nil {
		return Stats{}, fmt.Errorf("sidekiq: stats: %w", err)
	}
	slices.Sort(names)
	names = names[:min(len(names), MaxBatch)]
	p := script.StatsParams{
		Schedule: d.key("schedule"), Retry: d.key("retry"), Dead: d.key("dead"), Processes: d.key("processes"),
		Processed: d.key("stat:processed"), Failed: d.key("stat:failed"),
	}
	for _, name := range names {
		p.Queues = append(p.Queues, d.queueKey(name))
	}
	r, err := script.Stats(ctx, d.client, p)
	if err != nil {
		return Stats{}, fmt.Errorf("sidekiq: stats: %w", err)
	}
	out := Stats{
		Scheduled: int(r.Scheduled), Retries: int(r.Retries), Dead: int(r.Dead), Processes: int(r.Processes),
		Processed: counter(r.Processed), Failed: counter(r.Failed), Now: time.UnixMicro(r.Now),
	}
	for i, q := range r.Queues {
		if q.Size < 0 {
			out.NoLists = append(out.NoLists, names[i])
			continue
		}
		out.Queues = append(out.Queues, QueueStats{Name: names[i], Size: int(q.Size),
			Latency: d.latency(q.Oldest, out.Now)})
	}
	return out, nil
}

// counter parses a counter; text that is no number is 0.
func counter(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func (d *Dialect) latency(payload []byte, now time.Time) time.Duration {
	value, found, err := field(payload, "enqueued_at")
	if err != nil || !found {
		return 0
	}
	at, err := timeField(value, d.version)
	if err != nil {
		return 0
	}
	return max(now.Sub(at), 0)
}
