package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

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
		Queues:      c.queues,
		Concurrency: c.concurrency,
		Lease:       c.lease,
		Grace:       max(c.grace, 1), // 0 would mean the default
		WebUI:       true,
		AllowFields: c.allowed,
		OnError:     func(err error, job *sidekiq.Delivery) { c.s.warn(ofJob(err, job)) },
	}, c.perform)
	if errors.Is(err, sidekiq.ErrStopRequested) {
		c.s.note("luatomic: stopped from Sidekiq's Busy page")
		err = nil
	}
	if emitErr := c.s.emit(consumeResult{Acked: out.Done, Retried: out.Retried, Dead: out.Dead}); emitErr != nil {
		return errors.Join(err, emitErr)
	}
	return err
}

// ofJob names the job in an error that does not.
func ofJob(err error, job *sidekiq.Delivery) error {
	if job == nil || job.JID == "" || strings.HasPrefix(err.Error(), fmt.Sprintf("job %q", job.JID)) {
		return err
	}
	return fmt.Errorf("job %q: %w", job.JID, err)
}

// sidekiqQueues reads queues as Sidekiq's own -q does: NAME, or NAME,WEIGHT.
func sidekiqQueues(args []string) ([]sidekiq.Queue, error) {
	if len(args) == 0 {
		return nil, usagef("the queue is missing; name at least one queue")
	}
	var out []sidekiq.Queue
	for _, arg := range args {
		name, text, weighted := strings.Cut(arg, ",")
		q := sidekiq.Queue{Name: name}
		if weighted {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > 1000 {
				return nil, usagef("%q: a weight is a whole number from 1 to 1000, such as mail,3", arg)
			}
			q.Weight = n
		}
		if slices.ContainsFunc(out, func(o sidekiq.Queue) bool { return o.Name == name }) {
			return nil, usagef("queue %q is named twice; give it a weight, such as %s,2", name, name)
		}
		if err := lua.CheckName("queue", name); err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	return out, nil
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
		c.s.kill(running)
		return fmt.Errorf("job %q: command killed: %w", job.JID, context.Cause(ctx))
	case <-c.s.signals.hard.Done():
		c.s.kill(running)
		return sidekiq.RetryIn(0, errors.New("command killed: the worker was interrupted twice"))
	}
}
