package main

import (
	"errors"
	"flag"
	"time"

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

// again calls f once, or every watch until Ctrl-C.
func (s *session) again(watch *interval, f func() error) error {
	for {
		if err := f(); err != nil || !watch.on {
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
	watch := &interval{}
	return &command{
		name: "stats", args: "QUEUE... [flags]",
		about: "Count the jobs of queues.",
		detail: `Only reads. A queue that does not exist is empty. A job whose lease has ended counts as
leased until a consumer takes it back.`,
		output: `{"queue","ready","scheduled","leased","dead","oldest_ms","next_due","now","paused","limit","dead_bytes"}
  for each queue; oldest_ms: age of the oldest ready job or null; next_due: Unix ms or null; now: the
  server's time in Unix ms; limit: null without one; dead_bytes: the bodies of dead jobs`,
		example: `luatomic stats mail reports --watch 2s`,
		flags: func(fs *flag.FlagSet) {
			fs.Var(watch, "watch", "count again every `INTERVAL`, 1s if left out, until Ctrl-C")
		},
		check: func(s *session) error {
			if err := watch.check(); err != nil {
				return err
			}
			return s.queueArgs()
		},
		run: func(s *session) error {
			queues, done, err := s.openQueues()
			if err != nil {
				return err
			}
			defer done()
			return s.again(watch, func() error {
				for _, q := range queues {
					if err := countQueue(s, q); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

type statsResult struct {
	Queue     string `json:"queue"`
	Ready     int    `json:"ready"`
	Scheduled int    `json:"scheduled"`
	Leased    int    `json:"leased"`
	Dead      int    `json:"dead"`
	OldestMS  *int64 `json:"oldest_ms"`
	NextDue   *int64 `json:"next_due"`
	Now       int64  `json:"now"`
	Paused    bool   `json:"paused"`
	Limit     *int   `json:"limit"`
	DeadBytes int    `json:"dead_bytes"`
}

func countQueue(s *session, q *queue.Queue) error {
	st, err := q.Stats(s.signals.stop)
	if s.signals.stop.Err() != nil {
		return errInterrupted
	}
	if err != nil {
		return err
	}
	out := statsResult{
		Queue: q.Name(), Ready: st.Ready, Scheduled: st.Scheduled, Leased: st.Leased, Dead: st.Dead,
		NextDue: milli(st.NextDue), Now: st.Now.UnixMilli(), Paused: st.Paused, DeadBytes: st.DeadBytes,
	}
	if st.Limit > 0 {
		out.Limit = &st.Limit
	}
	if oldest, ok := st.Oldest.Get(); ok {
		// Below zero only if the server's clock was set back.
		age := max(st.Now.Sub(oldest).Milliseconds(), 0)
		out.OldestMS = &age
	}
	return s.emit(out)
}
