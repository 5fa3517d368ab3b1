package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// interval is a flag that may come alone, as --watch, or with a value.
type interval struct {
	on    bool
	every time.Duration
}

func (i *interval) IsBoolFlag() bool { return true }

func (i *interval) String() string {
	if i == nil || !i.on {
		return ""
	}
	return i.every.String()
}

func (i *interval) Set(v string) error {
	if v == "true" || v == "false" { // package flag's value for a flag without one
		i.on, i.every = v == "true", time.Second
		return nil
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		return errors.New("write an interval with its unit, such as 2s")
	}
	i.on, i.every = true, d
	return nil
}

// check validates the interval.
func (i *interval) check() error {
	if !i.on {
		return nil
	}
	return atLeast("watch", i.every, 10*time.Millisecond)
}

// again calls f once, or every watch until Ctrl-C. After its first success an outage of the server does not end it: the
// client reports that on stderr. Nor does a queue that cannot be shown beside others end it: that is reported when it
// begins.
func (s *session) again(watch *interval, f func() error) error {
	said := ""
	for done := false; ; {
		err := f()
		var hidden *hiddenQueues
		switch {
		case !watch.on:
			return err
		case err == nil:
			done, said = true, ""
		case errors.As(err, &hidden) && hidden.passable():
			if done = true; said != hidden.reason() && s.signals.stop.Err() == nil {
				said = hidden.reason()
				s.warn(err)
			}
		case s.signals.stop.Err() == nil && done && isAway(err): // it may be back at the next one
		default:
			return err
		}
		select {
		case <-s.signals.stop.Done():
			return errInterrupted
		case <-time.After(watch.every):
		}
	}
}

func statsCommand() *command {
	watch, dialect := &interval{}, ""
	return &command{
		name: "stats", args: "QUEUE... [flags]", tagged: true,
		about: "Count the jobs of queues.",
		detail: `Only reads. A queue that is empty and that no process has used fails. A job whose lease has
ended counts as leased, and as lapsed, until a consumer takes it back. The rates of --watch are of what consumers
report each 5 s. Pushed are the jobs by which the queue has grown, and those that were processed or
expired; a deleted or cancelled one counts against it. In a dialect of Sidekiq the totals come first, and QUEUE
may be left out: all queues.`,
		output: `{"queue","ready","scheduled","leased","lapsed","dead","oldest_ms","next_due","now","paused","limit",
  "dead_bytes","consumers"}
  for each queue; consumers: processes that consume it, null if this user may not read them;
  oldest_ms: age of the oldest ready job or null; next_due: Unix ms or null; now: the server's time in Unix ms; limit: null without one; dead_bytes: the bodies of dead jobs. With --watch also
  "pushed_per_second","processed_per_second","failed_per_second": in the last 10 s, null in the first 4 s.
  In a dialect of Sidekiq: {"processed","failed","scheduled","retries","dead","processes","now"}, with --watch
  "processed_per_second","failed_per_second", then for each queue {"queue","ready","latency_ms"}. On a
  terminal a table`,
		example: `luatomic stats mail reports --watch 2s`,
		flags: func(fs *flag.FlagSet) {
			fs.Var(watch, "watch", "count again every `INTERVAL`, 1s if left out, until Ctrl-C")
			dialectFlag(fs, &dialect, sidekiqs...)
		},
		check: func(s *session) error {
			if err := watch.check(); err != nil {
				return err
			}
			if dialect == "" {
				return s.queueArgs()
			}
			if err := foreignFlags(dialect, map[string]bool{"tag": s.tag != ""}); err != nil {
				return err
			}
			return s.checkNamespace()
		},
		run: func(s *session) error {
			if dialect != "" {
				return runSidekiqStats(s, dialect, watch)
			}
			client, queues, err := s.openQueues()
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }()
			c := counting{s: s}
			if watch.on {
				c.rates = newRates()
			}
			return s.again(watch, func() error { return c.all(s.signals.stop, client, queues) })
		},
	}
}

type statsResult struct {
	Queue     label  `json:"queue"`
	Ready     int    `json:"ready"`
	Scheduled int    `json:"scheduled"`
	Leased    int    `json:"leased"`
	Lapsed    int    `json:"lapsed"`
	Dead      int    `json:"dead"`
	OldestMS  *int64 `json:"oldest_ms"`
	NextDue   *int64 `json:"next_due"`
	Now       int64  `json:"now"`
	Paused    bool   `json:"paused"`
	Limit     *int   `json:"limit"`
	DeadBytes int    `json:"dead_bytes"`
	// Consumers is null where this user may not read the list of processes.
	Consumers *int `json:"consumers"`
}

func statsOf(q *queue.Queue, st queue.Stats) statsResult {
	out := statsResult{
		Queue: label(q.Name()), Ready: st.Ready, Scheduled: st.Scheduled, Leased: st.Leased, Lapsed: st.Lapsed,
		Dead:    st.Dead,
		NextDue: milli(st.NextDue), Now: st.Now.UnixMilli(), Paused: st.Paused, DeadBytes: st.DeadBytes,
	}
	if st.Limit > 0 {
		out.Limit = &st.Limit
	}
	out.OldestMS = age(st)
	return out
}

// watchedResult is a count of --watch.
type watchedResult struct {
	statsResult
	queueRates
}

// counting counts queues, once or again and again.
type counting struct {
	s     *session
	rates *rates // nil for one count
	known bool   // the queues exist, or did
	// processes are those that consume, as far as this user may read them.
	processes []queue.Worker
	read      bool
}

func (c *counting) all(ctx context.Context, client lua.Client, queues []*queue.Queue) error {
	columns := []string{"QUEUE", "READY", "SCHEDULED", "LEASED", "LAPSED", "DEAD", "OLDEST", "PAUSED", "CONSUMERS"}
	if c.rates != nil {
		columns = append(columns, "PUSHED/S", "PROCESSED/S", "FAILED/S")
	}
	processes, unread := queue.Workers(ctx, client, c.s.prefix)
	c.processes, c.read = processes, unread == nil
	out := c.s.rows(columns...)
	err := eachQueue(ctx, client, queues, out, c.one)
	c.known = c.known || err == nil
	return err
}

// one counts a queue. The first time, a queue of which nothing is stored is an error.
func (c *counting) one(ctx context.Context, q *queue.Queue) (line, error) {
	st, err := q.Stats(ctx)
	if err == nil && !c.known {
		err = unknown(ctx, q, st)
	}
	if err != nil {
		return line{}, err
	}
	row := statsOf(q, st)
	consumers := any("?")
	if c.read {
		n := q.ConsumedBy(c.processes)
		row.Consumers, consumers = &n, paint(n == 0 && waiting(st), red, n)
	}
	cells := []any{
		row.Queue, row.Ready, row.Scheduled, row.Leased, paint(row.Lapsed > 0, red, row.Lapsed),
		paint(row.Dead > 0, red, row.Dead),
		ago(st.Oldest.Or(time.Time{}), st.Now), paint(row.Paused, yellow, row.Paused), consumers,
	}
	if c.rates == nil {
		return line{row, cells}, nil
	}
	speed, err := c.rates.of(ctx, q, st)
	cells = append(cells, orNone(speed.Pushed), orNone(speed.Processed), orNone(speed.Failed))
	return line{watchedResult{row, speed}, cells}, err
}

// age is that of the oldest ready job in ms, or nil.
func age(st queue.Stats) *int64 {
	oldest, ok := st.Oldest.Get()
	if !ok {
		return nil
	}
	// Below zero only if the server's clock was set back.
	ms := max(st.Now.Sub(oldest).Milliseconds(), 0)
	return &ms
}
