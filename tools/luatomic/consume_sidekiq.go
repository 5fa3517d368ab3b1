package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
)

// runSidekiq is a worker process of a Sidekiq system.
func (c *consumeCmd) runSidekiq(client lua.Client) error {
	d, err := c.s.openSidekiq(client, c.dialect)
	if err != nil {
		return err
	}
	defer c.watch()()
	queues := make([]sidekiq.Queue, len(c.weighted))
	for i, w := range c.weighted {
		queues[i] = sidekiq.Queue{Name: w.name, Weight: w.weight}
	}
	// The bounds of the dead set are Ruby's configuration, which this process cannot read.
	most := c.dead
	if most <= 0 {
		most = math.MaxInt32
	}
	out, err := d.Work(c.s.signals.stop, &sidekiq.WorkOptions{
		Queues:      queues,
		Concurrency: c.concurrency,
		Lease:       c.lease,
		Grace:       max(c.grace, 1), // 0 would mean the default
		Quiet:       c.s.signals.quiet.Done(),
		WebUI:       true,
		MaxDead:     most,
		DeadFor:     100 * 365 * 24 * time.Hour,
		AllowFields: c.allowed,
		OnError:     func(err error, job *sidekiq.Delivery) { c.s.warn(ofJob(err, job)) },
	}, c.perform)
	if errors.Is(err, sidekiq.ErrStopRequested) {
		c.s.note("luatomic: stopped from Sidekiq's Busy page")
		err = nil
	}
	if emitErr := c.s.emit(consumeResult{
		Acked: out.Done, Retried: out.Retried, Dead: out.Dead, Returned: out.Returned + out.Declined,
		Dropped: out.Dropped,
	}); emitErr != nil {
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
	running, err := c.s.startChild(cmd, false)
	if err != nil {
		return sidekiq.Decline(err) // the command has not begun
	}
	if err = c.s.await(ctx, running); err == nil {
		return nil
	}
	err = fmt.Errorf("job %q, attempt %d: %w", job.JID, job.Retried+1, err)
	if _, ok := errors.AsType[*unfinishedError](err); ok {
		c.s.warn(fmt.Errorf("%w; it is returned", err))
		return fmt.Errorf("%w: %w", sidekiq.ErrStopped, err)
	}
	return err
}
