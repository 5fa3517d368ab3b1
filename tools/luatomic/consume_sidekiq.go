package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
)

// runSidekiq is a worker process of a Sidekiq system.
func (c *consumeCmd) runSidekiq(client lua.Client) error {
	d, err := c.s.openSidekiq(client, c.dialect)
	if err != nil {
		return err
	}
	defer context.AfterFunc(c.s.signals.stop, func() {
		c.s.note("luatomic: stopping; running commands may finish within %v; Ctrl-C again kills them", c.grace)
	})()
	out, err := d.Work(c.s.signals.stop, &sidekiq.WorkOptions{
		Queues:      []sidekiq.Queue{{Name: c.s.args[0]}},
		Concurrency: c.concurrency,
		Lease:       c.lease,
		Grace:       max(c.grace, 1), // 0 would mean the default
		WebUI:       true,
		OnError:     func(err error, _ *sidekiq.Delivery) { c.s.warn(err) },
	}, c.perform)
	if emitErr := c.s.emit(consumeResult{Acked: out.Done, Retried: out.Retried, Dead: out.Dead}); emitErr != nil {
		return errors.Join(err, emitErr)
	}
	return err
}

// perform runs the command for one job.
func (c *consumeCmd) perform(ctx context.Context, job *sidekiq.Delivery) error {
	cmd := exec.Command(c.path, c.s.child[1:]...)
	cmd.Args[0] = c.s.child[0]
	cmd.Env = append(os.Environ(),
		"LUATOMIC_QUEUE="+job.Queue,
		"LUATOMIC_ID="+job.JID,
		"LUATOMIC_CLASS="+job.Class,
		"LUATOMIC_ATTEMPT="+strconv.Itoa(job.Retried+1),
	)
	if !job.EnqueuedAt.IsZero() {
		cmd.Env = append(cmd.Env, "LUATOMIC_ENQUEUED_AT="+strconv.FormatInt(job.EnqueuedAt.UnixMilli(), 10))
	}
	cmd.Stdin = bytes.NewReader(job.Payload)
	// A file, so that the output does not depend on how fast this process reads.
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	running, err := startChild(cmd, false)
	if err != nil {
		return fmt.Errorf("job %q: %w", job.JID, err)
	}
	select {
	case <-running.done:
		if err := running.err(); err != nil {
			return fmt.Errorf("job %q, attempt %d: %w", job.JID, job.Retried+1, err)
		}
		return nil
	case <-ctx.Done():
		running.terminate()
		return fmt.Errorf("job %q: command killed: %w", job.JID, context.Cause(ctx))
	case <-c.s.signals.hard.Done():
		running.terminate()
		return sidekiq.RetryIn(0, errors.New("command killed: the worker was interrupted twice"))
	}
}
