package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/lua"
)

// Tag is Options.Tag.
func (q *Queue) Tag() string { return q.opts.Tag }

// Queues returns the queues of Options.Prefix that a process has pushed to, consumed or polled in the last 90 days.
// They are sorted by name, each with these options and its tag. A queue can be empty by now.
//
// The server may have lost the list, as after a restart without persistence, a failover, an eviction or FLUSHALL. So
// consumers and pollers list their queues when they begin and every five seconds, and producers after their first push
// and within five seconds of each later one. The call that lists a queue is not part of a push, and all pushes of a
// process share one call in five seconds. The first push of a Queue waits for it for at most a second. The call ends
// within five seconds. If it fails, the next push or report repeats it. So only a program that ends before can leave
// its queue unlisted.
//
// One read. Keys: queues:{luatomic}:names. Cost: O(n) for n queues.
func Queues(ctx context.Context, client lua.Client, opts *Options) ([]*Queue, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	names := keys.NewFleet(o.Prefix).Queues
	listed, err := servers.Read(ctx, client, redis.NewStringSliceCmd(ctx, "zrange", names, 0, -1)).Result()
	if err != nil {
		err = plainError(ctx, client, err, typed{names, "zset"})
		return nil, fmt.Errorf("luatomic: list the queues: %w", err)
	}
	slices.Sort(listed)
	var out []*Queue
	for _, text := range listed {
		tag, name, tagged := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}"), "}{")
		if o.Tag = tag; !tagged {
			o.Tag, name = "", tag
		}
		q, err := New(client, name, &o)
		if err != nil {
			continue // another program wrote it
		}
		out = append(out, q)
	}
	return out, nil
}

// Listed reports whether the queue is in the list of Queues. One read. Keys: queues:{luatomic}:names. Cost: O(1).
func (q *Queue) Listed(ctx context.Context) (bool, error) {
	names := keys.NewFleet(q.opts.Prefix).Queues
	err := servers.Read(ctx, q.client, redis.NewFloatCmd(ctx, "zscore", names, q.keys.Listed)).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err != nil {
		return false, q.wrap("look up", plainError(ctx, q.client, err, typed{names, "zset"}))
	}
	return true, nil
}

// Worker is a process that consumes queues.
type Worker struct {
	// ID is made for one run of the process' consumers.
	ID      string    `json:"id,omitempty"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Version string    `json:"version"` // of the program's main module
	Started time.Time `json:"started"` // by its own clock
	// Reported is when its last report came, by the server's clock. A process reports every five seconds: one that has
	// not for longer is dead or stalled.
	Reported time.Time `json:"reported,omitzero"`
	// Consumers has all consumers of the process. It is empty if they do not fit into the report of 512 KiB.
	Consumers []WorkerConsumer `json:"consumers"`
}

// WorkerConsumer is one Consume of a process. In JSON, a byte of a name or an id that is not UTF-8 is written as
// `\xff`, and the backslash of a text that looks like that as `\x5c`.
type WorkerConsumer struct {
	Queue       string `json:"queue"`
	Tag         string `json:"tag,omitempty"`
	Concurrency int    `json:"concurrency"`
	// Holds counts the jobs that the consumer has under a lease, prefetched ones included. Holding has the 100 jobs
	// that it has had for the longest time, or fewer if not all fit into the report of the process.
	Holds   int       `json:"holds"`
	Holding []Holding `json:"holding"`
}

// Holding is a job that a consumer has.
type Holding struct {
	ID      string `json:"id"`
	Kind    string `json:"kind,omitempty"`
	Attempt int    `json:"attempt"`
	// Since is when the job was taken, by the server's clock.
	Since time.Time `json:"since"`
}

// MarshalJSON writes names as the comment of WorkerConsumer says.
func (h Holding) MarshalJSON() ([]byte, error) {
	type plain Holding
	h.ID, h.Kind = show.Label(h.ID), show.Label(h.Kind)
	return json.Marshal(plain(h))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (h *Holding) UnmarshalJSON(text []byte) error {
	type plain Holding
	err := json.Unmarshal(text, (*plain)(h))
	h.ID, h.Kind = show.Named(h.ID), show.Named(h.Kind)
	return err
}

// MarshalJSON writes names as the comment of WorkerConsumer says.
func (w WorkerConsumer) MarshalJSON() ([]byte, error) {
	type plain WorkerConsumer
	w.Queue, w.Tag = show.Label(w.Queue), show.Label(w.Tag)
	return json.Marshal(plain(w))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (w *WorkerConsumer) UnmarshalJSON(text []byte) error {
	type plain WorkerConsumer
	err := json.Unmarshal(text, (*plain)(w))
	w.Queue, w.Tag = show.Named(w.Queue), show.Named(w.Tag)
	return err
}

// Workers returns the live processes that consume queues of that prefix, with what they had at their last report, at
// most five seconds ago. A process whose last consumer has ended is left out. A process that was killed stays for 15 s.
//
// Three reads. Keys: queues:{luatomic}:workers and :about. Cost: O(n) for n processes.
func Workers(ctx context.Context, client lua.Client, prefix string) ([]Worker, error) {
	fleet := keys.NewFleet(prefix)
	now, err := servers.Time(ctx, client, fleet.Workers)
	if err != nil {
		return nil, listError(err)
	}
	live, err := servers.Read(ctx, client, redis.NewZSliceCmd(ctx, "zrange", fleet.Workers, now.UnixMilli(), "+inf",
		"byscore", "withscores")).Result()
	if err != nil || len(live) == 0 {
		return nil, listError(plainError(ctx, client, err, typed{fleet.Workers, "zset"}))
	}
	fields := []any{"hmget", fleet.About}
	for _, z := range live {
		fields = append(fields, z.Member)
	}
	about, err := servers.Read(ctx, client, redis.NewSliceCmd(ctx, fields...)).Result()
	if err != nil {
		return nil, listError(plainError(ctx, client, err, typed{fleet.About, "hash"}))
	}
	var out []Worker
	for i, z := range live {
		described, _ := about[i].(string)
		_, text, _ := strings.Cut(described, " ")
		var w Worker
		if json.Unmarshal([]byte(text), &w) == nil {
			w.ID, _ = z.Member.(string)
			w.Reported = time.UnixMilli(int64(z.Score)).Add(-reportLease)
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b Worker) int { return a.Started.Compare(b.Started) })
	return out, nil
}

// ConsumedBy counts those of the processes that consume the queue. A process whose report had no room for its consumers
// counts for each queue. A program that takes jobs without Consume does not report itself.
func (q *Queue) ConsumedBy(processes []Worker) (n int) {
	for _, w := range processes {
		consumes := func(c WorkerConsumer) bool { return c.Queue == q.name && c.Tag == q.opts.Tag }
		if w.Consumers == nil || slices.ContainsFunc(w.Consumers, consumes) {
			n++
		}
	}
	return n
}

// History is what the server of a list of processes has been through. All times are by its clock.
type History struct {
	// Now is when it was read.
	Now time.Time
	// Lost is when a consumer has last found that the server had lost what it had: it did not have the reports that the
	// process had sent before, or only older ones. That is so after a restart without data or with those of an old
	// snapshot, a failover that lost writes, an eviction, and FLUSHALL. Without a consumer of this prefix that ran
	// before and runs after the loss, and for what is lost within the five seconds between two reports, nobody finds
	// it. Lost is zero if no loss was found in the life of the list.
	Lost time.Time
	// Started is when the server was started, to a second. It is zero where INFO does not say it, or is refused.
	Started time.Time
	// Restarted: the list is older than the server that has it. The server was restarted with data, or is a replica
	// that was started later and has taken the place of the one before.
	Restarted bool
}

// ReadHistory returns what the server of the prefix has been through: a consumer does not notice a restart itself. In a
// cluster it is about the server that has the list of processes, which a day without a report removes.
//
// One read; a second one, and INFO, if there is a list. Keys: queues:{luatomic}:about. Cost: O(1).
func ReadHistory(ctx context.Context, client lua.Client, prefix string) (History, error) {
	about := keys.NewFleet(prefix).About
	text, err := servers.Read(ctx, client, redis.NewStringCmd(ctx, "hget", about, "")).Result()
	if err != nil {
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		return History{}, listError(plainError(ctx, client, err, typed{about, "hash"}))
	}
	h := History{}
	if h.Now, err = servers.Time(ctx, client, about); err != nil {
		return History{}, listError(err)
	}
	made, found, _ := strings.Cut(text, " ")
	if ms, err := strconv.ParseInt(found, 10, 64); err == nil && ms > 0 {
		h.Lost = time.UnixMilli(ms)
	}
	h.Started = startOf(ctx, client, about, h.Now)
	if us, err := strconv.ParseInt(made, 10, 64); err == nil && !h.Started.IsZero() {
		h.Restarted = h.Started.Add(-uptimeUnit).After(time.UnixMicro(us))
	}
	return h, nil
}

// uptimeUnit bounds the error of a start that is computed from an uptime: both are whole seconds.
const uptimeUnit = 2 * time.Second

// startOf returns when the server of the key was started. What cannot be read is zero.
func startOf(ctx context.Context, client lua.Client, key string, now time.Time) time.Time {
	node, _, err := servers.Of(ctx, client, key)
	if err != nil {
		return time.Time{}
	}
	_, rest, _ := strings.Cut(node.Info(ctx, "server").Val(), "uptime_in_seconds:")
	line, _, _ := strings.Cut(rest, "\n")
	up, err := strconv.ParseInt(strings.TrimSpace(line), 10, 32)
	if err != nil {
		return time.Time{}
	}
	return now.Add(-time.Duration(up) * time.Second)
}

func listError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("luatomic: list the workers: %w", err)
}

// DayCounts are what the consumers of a queue did on one day, in UTC by their own clocks. The counts are not exact: a
// process that is killed loses the counts of its last five seconds, and work without Consume is not counted. What could
// not be reported on its day is counted on the day when it can be.
type DayCounts struct {
	Day string // as 2006-01-02
	// Processed jobs were acked. Failed counts failed deliveries, of which Dead were the last of their job. Expired
	// jobs were deleted without a run.
	Processed, Failed, Dead, Expired int
}

// lastDays returns the last n days, the latest first.
func lastDays(now time.Time, n int) []DayCounts {
	out := make([]DayCounts, n)
	for i := range out {
		out[i].Day = dayOf(now.UTC().AddDate(0, 0, -i)) // a day of another zone can have 23 hours or 25
	}
	return out
}

// Counts returns the counts of the last days, at most 90, today included, the latest first. They are kept for 90 days.
//
// One pipeline. Keys: queues:{luatomic}:n:DAY. Cost: O(days).
func (q *Queue) Counts(ctx context.Context, days int) ([]DayCounts, error) {
	fleet := keys.NewFleet(q.opts.Prefix)
	rows := make([]*redis.SliceCmd, max(min(days, 90), 0))
	out := lastDays(time.Now(), len(rows))
	for i := range rows {
		head := q.keys.Listed + "\n"
		rows[i] = redis.NewSliceCmd(ctx, "hmget", fleet.Counts(out[i].Day), head+"p", head+"f", head+"d", head+"x")
	}
	if err := servers.ReadAll(ctx, q.client, rows); err != nil {
		days := make([]typed, len(out))
		for i := range out {
			days[i] = typed{fleet.Counts(out[i].Day), "hash"}
		}
		return nil, q.wrap("counts of", plainError(ctx, q.client, err, days...))
	}
	for i, row := range rows {
		for k, to := range []*int{&out[i].Processed, &out[i].Failed, &out[i].Dead, &out[i].Expired} {
			if text, ok := row.Val()[k].(string); ok {
				*to, _ = strconv.Atoi(text)
			}
		}
	}
	return out, nil
}
