package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// tagFlag lets a command name a queue that has a tag.
func (s *session) tagFlag(fs *flag.FlagSet) {
	fs.StringVar(&s.tag, "tag", "", "`TAG` of the queue, of those that share a slot")
}

// withQueue runs f with the queue that the first argument names.
func (s *session) withQueue(f func(ctx context.Context, q *queue.Queue) error) error {
	return s.withQueueOn(func(ctx context.Context, _ lua.Client, q *queue.Queue) error { return f(ctx, q) })
}

// withQueueOn runs f with the queue and the client that it is on.
func (s *session) withQueueOn(f func(ctx context.Context, client lua.Client, q *queue.Queue) error) error {
	return s.withClient(func(ctx context.Context, client lua.Client) error {
		// The bounds of failures and of the dead set are the consumers': a command buries or deletes only where it says
		// so.
		dead := queue.DeadLimits{Jobs: -1}
		q, err := queue.New(client, s.args[0], &queue.Options{
			Prefix: s.prefix, Tag: s.tag, Dead: dead, MaxFailures: -1,
		})
		if err != nil {
			return err
		}
		return f(ctx, client, q)
	})
}

func queueCommands() []*command {
	return []*command{
		queuesLsCommand(), queuesWorkersCommand(), queuePauseCommand(), queueResumeCommand(), queueLimitCommand(),
		queueTrimCommand(), queueAuditCommand(),
	}
}

type queueRow struct {
	Queue     label  `json:"queue"`
	Tag       label  `json:"tag"`
	Ready     int    `json:"ready"`
	Scheduled int    `json:"scheduled"`
	Leased    int    `json:"leased"`
	Lapsed    int    `json:"lapsed"`
	Dead      int    `json:"dead"`
	OldestMS  *int64 `json:"oldest_ms"`
	Paused    bool   `json:"paused"`
	Processed int    `json:"processed"`
	Failed    int    `json:"failed"`
	Died      int    `json:"died"`
	Expired   int    `json:"expired"`
	// Consumers is null where this user may not read the list of processes.
	Consumers *int `json:"consumers"`
}

func queuesLsCommand() *command {
	watch := &interval{}
	return &command{
		name: "queues ls", args: "[flags]",
		about: "List the queues, with their jobs and today's counts.",
		detail: `Lists the queues under --prefix that a process has pushed to, consumed or polled in the
last 90 days. The counts are those of Consume today, UTC, at most 5 s old. Lapsed are leased jobs
whose worker died or stalled: a consumer takes them back, or jobs reclaim.`,
		output: `{"queue","tag","ready","scheduled","leased","lapsed","dead","oldest_ms","paused","processed","failed","died","expired",
  "consumers"} for each queue, on a terminal a table; processed, failed, died, expired: today; consumers: the
  processes that consume it, by their reports`,
		example: `luatomic queues ls`,
		flags: func(fs *flag.FlagSet) {
			fs.Var(watch, "watch", "list again every `INTERVAL`, 1s if left out, until Ctrl-C")
		},
		check: func(s *session) error {
			if err := watch.check(); err != nil {
				return err
			}
			return s.noArgs()
		},
		run: func(s *session) error {
			return s.withClient(func(ctx context.Context, client lua.Client) error {
				if text, _, err := historyText(ctx, client, s.prefix); err == nil && text != "" {
					s.warn(errors.New(text))
				}
				return s.again(watch, func() error { return listQueues(ctx, s, client) })
			})
		},
	}
}

func listQueues(ctx context.Context, s *session, client lua.Client) error {
	queues, err := queue.Queues(ctx, client, &queue.Options{Prefix: s.prefix})
	if err != nil {
		return err
	}
	out := s.rows("QUEUE", "TAG", "READY", "SCHEDULED", "LEASED", "LAPSED", "DEAD", "OLDEST", "PAUSED", "PROCESSED",
		"FAILED", "CONSUMERS")
	processes, unread := queue.Workers(ctx, client, s.prefix)
	return errors.Join(eachQueue(ctx, client, queues, out, func(ctx context.Context, q *queue.Queue) (line, error) {
		return listQueue(ctx, q, processes, unread == nil)
	}), unread)
}

// listQueue reads a queue, and counts its consumers where the list of processes could be read.
func listQueue(ctx context.Context, q *queue.Queue, processes []queue.Worker, read bool) (line, error) {
	st, err := q.Stats(ctx)
	if err != nil {
		return line{}, err
	}
	days, err := q.Counts(ctx, 1)
	if err != nil {
		return line{}, err
	}
	row := queueRow{
		Queue: label(q.Name()), Tag: label(q.Tag()), Ready: st.Ready, Scheduled: st.Scheduled, Leased: st.Leased,
		Lapsed: st.Lapsed, Dead: st.Dead, OldestMS: age(st), Paused: st.Paused,
		Processed: days[0].Processed, Failed: days[0].Failed, Died: days[0].Dead, Expired: days[0].Expired,
	}
	consumers := any("?")
	if read {
		n := q.ConsumedBy(processes)
		row.Consumers, consumers = &n, paint(n == 0 && waiting(st), red, n)
	}
	return line{row, []any{row.Queue, row.Tag, row.Ready, row.Scheduled, row.Leased,
		paint(row.Lapsed > 0, red, row.Lapsed), row.Dead, ago(st.Oldest.Or(time.Time{}), st.Now), row.Paused,
		row.Processed, row.Failed, consumers}}, nil
}

// waiting reports whether a consumer would have something to do now.
func waiting(st queue.Stats) bool { return st.Ready+st.Lapsed > 0 && !st.Paused }

func queuesWorkersCommand() *command {
	return &command{
		name: "queues workers", args: "[flags]",
		about: "List the processes that consume queues, and the jobs that each holds.",
		detail: `What a process had at its last report. A process reports every 5 s; one that was killed or
stalls stays for 15 s, with its last report.`,
		output: `{"id","host","pid","version","started","reported","consumers":[{"queue","tag","concurrency","holds","holding":[{"id","attempt",
  "since"}]}]} for each process, on a terminal a table; holding: the 100 jobs it has had
  longest; reported: when its last report came`,
		example: `luatomic queues workers`,
		flags:   func(*flag.FlagSet) {},
		check:   func(s *session) error { return s.noArgs() },
		run: func(s *session) error {
			return s.withClient(func(ctx context.Context, client lua.Client) error {
				workers, err := queue.Workers(ctx, client, s.prefix)
				if err != nil {
					return err
				}
				now, err := servers.Time(ctx, client, keys.NewFleet(s.prefix).Workers)
				if err != nil {
					return err
				}
				return s.printWorkers(workers, now)
			})
		},
	}
}

// printWorkers prints a line for each process, or on a terminal one for each of its consumers.
func (s *session) printWorkers(workers []queue.Worker, now time.Time) error {
	out := s.rows("HOST", "PID", "VERSION", "STARTED", "REPORTED", "QUEUE", "TAG", "HOLDS", "OF", "LONGEST")
	for _, w := range workers {
		if !s.tables {
			if err := out.add(w); err != nil {
				return err
			}
			continue
		}
		for _, c := range w.Consumers {
			longest := "-"
			if len(c.Holding) > 0 {
				longest = show.Label(c.Holding[0].ID) + " " + ago(c.Holding[0].Since, now)
			}
			reported := paint(now.Sub(w.Reported) > 7*time.Second, yellow, ago(w.Reported, now))
			if err := out.add(nil, w.Host, w.PID, w.Version, ago(w.Started, now), reported,
				label(c.Queue), label(c.Tag),
				c.Holds, c.Concurrency, longest); err != nil {
				return err
			}
		}
	}
	return out.endOr("no process consumes")
}

const queueResult = `{"queue","paused","limit"}`

// settingCommand is a command that changes one setting of a queue, there and in what was read of it, and prints both.
// It reads nothing after the change: that could fail, and hide that the change was made.
func settingCommand(verb, args, about, detail string, check func(s *session) error,
	set func(ctx context.Context, s *session, q *queue.Queue, st *queue.Stats) error) *command {
	return &command{
		name: "queue " + verb, args: args, about: about, detail: detail, output: queueResult,
		example: "luatomic queue " + verb + " mail" + map[bool]string{true: " 10000"}[verb == "limit"],
		tagged:  true,
		flags:   func(*flag.FlagSet) {},
		check:   check,
		run: func(s *session) error {
			return s.withQueue(func(ctx context.Context, q *queue.Queue) error {
				st, err := s.expect(ctx, q, verb != "resume")
				if err != nil {
					return err
				}
				if err := set(ctx, s, q, &st); err != nil {
					return err
				}
				out := map[string]any{"queue": label(q.Name()), "paused": st.Paused, "limit": nil}
				if st.Limit > 0 {
					out["limit"] = st.Limit
				}
				return s.emit(out)
			})
		},
	}
}

func oneQueue(s *session) error { return s.oneArg("queue") }

func queuePauseCommand() *command {
	return settingCommand("pause", "QUEUE [flags]", "Stop deliveries from a queue.",
		`For every consumer, until queue resume. Pushes and the work on leased jobs continue.`, oneQueue,
		func(ctx context.Context, _ *session, q *queue.Queue, st *queue.Stats) error {
			st.Paused = true
			return q.Pause(ctx)
		})
}

func queueResumeCommand() *command {
	return settingCommand("resume", "QUEUE [flags]", "Resume deliveries from a queue.",
		`A waiting consumer is notified at once.`, oneQueue,
		func(ctx context.Context, _ *session, q *queue.Queue, st *queue.Stats) error {
			st.Paused = false
			return q.Resume(ctx)
		})
}

func queueLimitCommand() *command {
	return settingCommand("limit", "QUEUE N [flags]", "Bound the jobs that are ready, scheduled or leased.",
		`A push that would pass the limit fails, for every producer. 0 removes the limit. Existing jobs
stay.`,
		func(s *session) error {
			if len(s.args) != 2 {
				return usagef("write the queue and its limit, such as: luatomic queue limit mail 10000; 0 for none")
			}
			if _, err := limitOf(s); err != nil {
				return err
			}
			return keys.CheckName("queue", s.args[0])
		},
		func(ctx context.Context, s *session, q *queue.Queue, st *queue.Stats) (err error) {
			if st.Limit, err = limitOf(s); err != nil {
				return err
			}
			return q.SetLimit(ctx, st.Limit)
		})
}

func limitOf(s *session) (int, error) {
	n, err := strconv.Atoi(s.args[1])
	if err != nil || n < 0 {
		return 0, usagef("the limit %q is not a number of jobs; write 0 or more", s.args[1])
	}
	return n, nil
}

// argument names a queue to a command, in a shell.
func argument(q *queue.Queue) string {
	if q.Tag() == "" {
		return quoted(show.Label(q.Name()))
	}
	return quoted(show.Label(q.Name())) + " --tag " + quoted(show.Label(q.Tag()))
}

// quoted is a text as one word of a shell.
func quoted(text string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@%+="
	if text != "" && strings.Trim(text, plain) == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// unknownQueue is the error for a queue that is empty and that no process has named.
type unknownQueue string

func (name unknownQueue) Error() string {
	return fmt.Sprintf("there is no queue %q; luatomic queues ls lists them", string(name))
}

func unknown(ctx context.Context, q *queue.Queue, st queue.Stats) error {
	if st.Ready+st.Scheduled+st.Leased+st.Dead+st.Limit > 0 || st.Paused {
		return nil
	}
	listed, err := q.Listed(ctx)
	if err != nil || listed {
		return err
	}
	return unknownQueue(q.Name())
}

// expect counts the jobs of a queue, and fails for one that is unknown. Where early, the command is also for one that
// will be used: stderr says so.
func (s *session) expect(ctx context.Context, q *queue.Queue, early bool) (queue.Stats, error) {
	st, err := q.Stats(ctx)
	if err == nil {
		err = unknown(ctx, q, st)
	}
	var none unknownQueue
	if early && errors.As(err, &none) {
		s.note("luatomic: no process has used queue %q so far; luatomic queues ls lists those that are in use",
			q.Name())
		return st, nil
	}
	return st, err
}

// foresee says on stderr why a drain of the queue will wait, or have nothing to do. What cannot be read is left to the
// consumer.
func (s *session) foresee(ctx context.Context, q *queue.Queue) {
	if st, err := q.Stats(ctx); err == nil && st.Paused {
		s.note("luatomic: queue %q is paused; luatomic queue resume %s ends that", q.Name(), argument(q))
		return
	}
	_, _ = s.expect(ctx, q, true)
}
