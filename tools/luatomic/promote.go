package main

import (
	"errors"
	"flag"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/queue"
)

func promoteCommand() *command {
	watch, dialect := false, ""
	return &command{
		name: "promote", args: "[QUEUE...] [flags]", tagged: true,
		about: "Move scheduled jobs that are due to ready.",
		detail: `Moves all jobs that are due, never early, each once however many promoters run. A queue
with consumers needs none: taking promotes. With --watch it sleeps until the next job is due, and
continues until Ctrl-C, or SIGTERM, whose exit code is 0. In another dialect than native it takes no
QUEUE and promotes all of them.`,
		output: `{"queue","moved","next_due"} for each queue, with --watch for each move; next_due: Unix ms or null; in
  another dialect {"moved","malformed","next_due"}; malformed: how many were set aside, each with its
  reason on stderr`,
		example: `luatomic promote mail reports --watch`,
		flags: func(fs *flag.FlagSet) {
			fs.BoolFunc("watch", "continue until Ctrl-C", func(v string) error {
				if watch = v == "true"; !watch && v != "false" {
					return errors.New("no interval here; leave it out: promote sleeps until the next job is due")
				}
				return nil
			})
			dialectFlag(fs, &dialect, append(slices.Clone(sidekiqs), redisInAction)...)
		},
		check: func(s *session) error {
			if dialect == "" {
				return s.queueArgs()
			}
			if err := foreignFlags(dialect, map[string]bool{"tag": s.tag != ""}); err != nil {
				return err
			}
			if len(s.args) > 0 {
				return usagef("in the dialect %s all queues are promoted together; leave %q out", dialect, s.args)
			}
			if dialect == redisInAction {
				return nil
			}
			return s.checkNamespace()
		},
		run: func(s *session) error {
			s.lasting = watch
			if dialect == redisInAction {
				return promoteTasks(s, watch)
			} else if dialect != "" {
				return promoteSidekiq(s, dialect, watch)
			}
			client, queues, err := s.openQueues()
			if err != nil {
				return err
			}
			defer func() { _ = client.Close() }()
			if watch {
				return watchDue(s, queues)
			}
			return promoteEach(s, queues)
		},
	}
}

type promoteResult struct {
	Queue   label  `json:"queue"`
	Moved   int    `json:"moved"`
	NextDue *int64 `json:"next_due"`
}

// openQueues connects and returns the queues that the arguments name.
func (s *session) openQueues() (client redis.UniversalClient, queues []*queue.Queue, err error) {
	if client, err = s.connect(s.signals.stop); err != nil {
		return nil, nil, err
	}
	for _, name := range s.args {
		q, err := queue.New(client, name, &queue.Options{Prefix: s.prefix, Tag: s.tag})
		if err != nil {
			_ = client.Close()
			return nil, nil, err
		}
		queues = append(queues, q)
	}
	return client, queues, nil
}

// promoteEach promotes one queue after the other. One that the server refuses holds up no other.
func promoteEach(s *session, queues []*queue.Queue) (failed error) {
	for _, q := range queues {
		err := promoteDue(s, q)
		failed = errors.Join(failed, err)
		if err != nil && (!isReply(err) || isAway(err)) {
			break
		}
	}
	return failed
}

// promoteDue moves in steps of queue.MaxBatch until nothing is due.
func promoteDue(s *session, q *queue.Queue) error {
	out := promoteResult{Queue: label(q.Name())}
	for {
		if s.signals.stop.Err() != nil {
			break
		}
		p, err := q.Promote(s.signals.hard)
		if err != nil && out.Moved > 0 {
			return errors.Join(err, s.emit(out))
		}
		if err != nil {
			return err
		}
		out.Moved += p.Moved
		out.NextDue = milli(p.NextDue)
		if next, ok := p.NextDue.Get(); !ok || next.After(p.Now) {
			break
		}
	}
	if out.Moved == 0 && out.NextDue == nil {
		_, _ = s.expect(s.signals.stop, q, true) // the name may be mistyped
	}
	if err := s.emit(out); err != nil {
		return err
	}
	if s.signals.stop.Err() != nil {
		return errInterrupted
	}
	return nil
}

func watchDue(s *session, queues []*queue.Queue) error {
	warn := s.warnRarely()
	poller := queue.NewPoller(&queue.PollerOptions{
		OnPromote: func(q *queue.Queue, p queue.Promoted) {
			out := promoteResult{Queue: label(q.Name()), Moved: p.Moved, NextDue: milli(p.NextDue)}
			_ = s.emit(out) // which ends the command if it fails
		},
		OnError: func(_ *queue.Queue, err error) { warn(err) },
	}, queues...)
	return poller.Run(s.signals.stop)
}
