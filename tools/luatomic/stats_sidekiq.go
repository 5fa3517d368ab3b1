package main

import (
	"errors"
	"slices"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/operate"
)

// sidekiqTotals are the counts of a Sidekiq system; sidekiqQueue those of one queue.
type sidekiqTotals struct {
	Processed int64 `json:"processed"`
	Failed    int64 `json:"failed"`
	Scheduled int   `json:"scheduled"`
	Retries   int   `json:"retries"`
	Dead      int   `json:"dead"`
	Processes int   `json:"processes"`
	Now       int64 `json:"now"`
}

// watchedTotals are those of --watch.
type watchedTotals struct {
	sidekiqTotals
	Processed *float64 `json:"processed_per_second"`
	Failed    *float64 `json:"failed_per_second"`
}

type sidekiqQueue struct {
	Queue     label `json:"queue"`
	Ready     int   `json:"ready"`
	LatencyMS int64 `json:"latency_ms"`
}

// countSidekiq prints the totals and a line for each queue, or for those that the arguments name.
func countSidekiq(s *session, d *sidekiq.Dialect, rates *operate.Meter) error {
	st, err := d.Stats(s.signals.stop)
	if s.signals.stop.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	if err := totalSidekiq(s, &st, rates); err != nil {
		return err
	}
	noLists(s, &st)
	out := s.rows("QUEUE", "READY", "LATENCY")
	for _, name := range s.args {
		known := slices.ContainsFunc(st.Queues, func(q sidekiq.QueueStats) bool { return q.Name == name })
		if !known && !slices.Contains(st.NoLists, name) {
			st.Queues = append(st.Queues, sidekiq.QueueStats{Name: name}) // empty, and listed nowhere
		}
	}
	for _, q := range st.Queues {
		if len(s.args) > 0 && !slices.Contains(s.args, q.Name) {
			continue
		}
		row := sidekiqQueue{Queue: label(q.Name), Ready: q.Size, LatencyMS: q.Latency.Milliseconds()}
		if err := out.add(row, q.Name, q.Size, rounded(q.Latency)); err != nil {
			return err
		}
	}
	return out.end()
}

// noLists names the queues that are not counted.
func noLists(s *session, st *sidekiq.Stats) {
	for _, name := range st.NoLists {
		s.note("queue %q is not counted: its key is no list; rename or delete the key", name)
	}
}

// totalSidekiq prints the totals, with their rates where there is a meter.
func totalSidekiq(s *session, st *sidekiq.Stats, rates *operate.Meter) error {
	total := sidekiqTotals{Processed: st.Processed, Failed: st.Failed, Scheduled: st.Scheduled, Retries: st.Retries,
		Dead: st.Dead, Processes: st.Processes, Now: st.Now.UnixMilli()}
	columns := []string{"PROCESSED", "FAILED", "SCHEDULED", "RETRIES", "DEAD", "PROCESSES"}
	cells := []any{total.Processed, total.Failed, total.Scheduled, total.Retries,
		paint(total.Dead > 0, red, total.Dead), total.Processes}
	if rates == nil {
		out := s.rows(columns...)
		return errors.Join(out.add(total, cells...), out.end())
	}
	processed := known(rates.Rate("processed", total.Processed, time.Now()))
	failed := known(rates.Rate("failed", total.Failed, time.Now()))
	out := s.rows(append(columns, "PROCESSED/S", "FAILED/S")...)
	err := out.add(watchedTotals{total, processed, failed}, append(cells, orNone(processed), orNone(failed))...)
	return errors.Join(err, out.end())
}

// runSidekiqStats counts once, or every watch.
func runSidekiqStats(s *session, dialect string, watch *interval) error {
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	d, err := s.openSidekiq(client, dialect)
	if err != nil {
		return err
	}
	var rates *operate.Meter
	if watch.on {
		rates = &operate.Meter{}
	}
	return s.again(watch, func() error { return countSidekiq(s, d, rates) })
}
