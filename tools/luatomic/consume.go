package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

type consumeCmd struct {
	concurrency int
	drain       bool
	lease       time.Duration
	attempts    int
	backoff     time.Duration
	grace       time.Duration
	allowed     []string
	dead        int
	weighted    []weighted

	path    string
	s       *session
	dialect string
}

func consumeCommand() *command {
	c := &consumeCmd{}
	return &command{
		name: "consume", args: "QUEUE... [flags]", child: true, tagged: true,
		about: "Run a command for each job.",
		detail: `CMD gets the body on stdin, and in its environment LUATOMIC_QUEUE, LUATOMIC_ID,
LUATOMIC_ATTEMPT (1 for the first), LUATOMIC_ENQUEUED_AT and LUATOMIC_DEADLINE (Unix ms; the lease
is renewed while CMD runs). Its output goes to stderr. Exit code 0 acks the job; any other delivers
it again after the back-off, or makes it dead after the last attempt. If the lease is lost, CMD is
killed: SIGTERM, after 2 s SIGKILL. After Ctrl-C or SIGTERM no job is taken, and CMDs may finish within
the grace; then, or at a second Ctrl-C, they are killed. Their jobs are returned without a failure, and so is
the job of a CMD that the same signal ends. SIGTSTP or SIGUSR1 quiets: no job is taken until the end.
After SIGTERM the exit code is 0 if all CMDs have finished, unless --drain is unfinished.
The dead jobs that the application keeps stay: without --dead, its bounds hold, if it has stored any.
A job can run twice, when the machine dies before it is acked: make CMD idempotent.
Several queues are served in order, or at random by weight: mail,3 low,1. They share a --tag.
In a dialect of Sidekiq CMD gets the payload; the job's own retry decides how often, and Sidekiq's
back-off when.`,
		output: `{"acked","retried","dead","returned","dropped"} at the end; returned: without a failure, not begun
  or ended with this program; dropped: deleted undone (expired, cancelled; in a dialect failed without a retry)`,
		example: `luatomic consume mail -c 4 --drain -- sh -c 'jq -r .to'`,
		flags: func(fs *flag.FlagSet) {
			fs.IntVar(&c.concurrency, "c", 1, "`N` commands run at a time")
			fs.BoolVar(&c.drain, "drain", false, "end when no job is ready, scheduled or leased")
			fs.DurationVar(&c.lease, "lease", 30*time.Second,
				"`DURATION` after which the job of a dead consumer is taken back")
			fs.IntVar(&c.attempts, "attempts", 25, "`N` failures make a job dead; -1: never")
			fs.DurationVar(&c.backoff, "backoff", time.Second,
				"`DURATION` before the second attempt, doubled for each further one, 1h at most")
			fs.IntVar(&c.dead, "dead", 0, "`N` dead jobs stay at most, the latest, from now on; -1: all")
			fs.DurationVar(&c.grace, "grace", 10*time.Second, "`DURATION` for commands to finish after Ctrl-C")
			fs.Func("allow-field",
				"in a dialect of Sidekiq: perform jobs with this `FIELD`, whose middleware runs in Ruby only",
				func(name string) error { c.allowed = append(c.allowed, name); return nil })
			dialectFlag(fs, &c.dialect, sidekiqs...)
		},
		check: c.check,
		run:   c.run,
	}
}

func (c *consumeCmd) check(s *session) (err error) {
	if c.path, err = lookChild(s); err != nil {
		return err
	}
	if c.weighted, err = weightedQueues(s.args); err != nil {
		return err
	}
	if err := c.checkBounds(); err != nil {
		return err
	}
	if c.dialect == "" {
		return c.checkNative(s)
	}
	if err := foreignFlags(c.dialect, map[string]bool{
		"drain": c.drain, "attempts": c.attempts != 25, "backoff": c.backoff != time.Second, "tag": s.tag != "",
	}); err != nil {
		return err
	}
	return s.checkNamespace()
}

func (c *consumeCmd) checkBounds() error {
	switch {
	case c.concurrency < 1 || c.concurrency > queue.MaxBatch:
		return usagef("-c %d is out of range; write 1 to %d", c.concurrency, queue.MaxBatch)
	case c.attempts == 0 || c.attempts < -1:
		return usagef("--attempts %d is out of range; write 1 or more, or -1 for no end", c.attempts)
	case c.dead < -1:
		return usagef("--dead %d is out of range; write 1 or more, or -1 for no bound", c.dead)
	}
	return errors.Join(
		// Renewals come at a third of it and must survive a slow moment.
		atLeast("lease", c.lease, 100*time.Millisecond),
		atLeast("backoff", c.backoff, 0),
		atLeast("grace", c.grace, 0),
	)
}

func (c *consumeCmd) checkNative(s *session) error {
	switch n := len(c.weighted); {
	case len(c.allowed) > 0:
		return usagef("--allow-field is for the dialects of Sidekiq; add --dialect, or leave it out")
	case n > 1 && s.tag == "":
		return usagef("%d queues without a --tag: one consumer takes from queues of one tag; name it, or run a "+
			"consumer for each", n)
	case n > queue.MaxSources:
		return usagef("%d queues; one consumer takes from %d at most", n, queue.MaxSources)
	}
	return nil
}

type consumeResult struct {
	Acked    int `json:"acked"`
	Retried  int `json:"retried"`
	Dead     int `json:"dead"`
	Returned int `json:"returned"`
	Dropped  int `json:"dropped"`
}

// errQuiet ends the takes of a worker that a signal has quieted.
var errQuiet = errors.New("quiet")

// watch says what the signals do to the running commands, and does it: until the returned function is called.
func (c *consumeCmd) watch() (release func()) {
	sg := c.s.signals
	sg.quiets()
	quiet := context.AfterFunc(sg.quiet, func() {
		c.s.note("luatomic: quiet; no job is taken any more, running commands may finish; SIGTERM or Ctrl-C ends it")
	})
	stop := context.AfterFunc(sg.stop, func() {
		c.s.note("luatomic: stopping; running commands may finish within %v; Ctrl-C again kills them", c.grace)
	})
	bounded := sg.bound(c.grace)
	return func() {
		quiet()
		stop()
		bounded()
	}
}

func (c *consumeCmd) run(s *session) error {
	c.s, s.lasting = s, !c.drain // which a signal keeps from its end
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if c.dialect != "" {
		return c.runSidekiq(client)
	}
	from, err := c.sources(client)
	if err != nil {
		return err
	}
	for _, source := range from {
		if c.drain {
			s.foresee(s.signals.stop, source.Queue)
		}
	}
	out, err := c.consume(from)
	if emitErr := s.emit(out); emitErr != nil {
		return errors.Join(err, emitErr)
	}
	return err
}

// consume runs the command for each job until a signal or an empty queue ends it. A quiet worker takes nothing, and
// stays until it is stopped: a supervisor would start one that ends anew.
func (c *consumeCmd) consume(from []queue.Source) (consumeResult, error) {
	defer c.watch()()
	taking, end := context.WithCancelCause(c.s.signals.stop)
	defer end(nil)
	defer context.AfterFunc(c.s.signals.quiet, func() { end(errQuiet) })()
	var failed atomic.Int64
	warn := c.s.warnRarely()
	out, err := queue.ConsumeAll(taking, &queue.ConsumeOptions{
		Concurrency: c.concurrency,
		Backoff:     c.delay,
		Grace:       math.MaxInt64, // await ends the commands, and so the handlers
		Drain:       c.drain,
		OnError: func(err error) {
			of, ok := errors.AsType[*queue.JobError](err)
			if ok && of.Declined == 0 && of.Outcome == queue.OutcomeRetried {
				failed.Add(1)
			}
			warn(err)
		},
	}, c.work, from...)
	if errors.Is(err, errQuiet) {
		<-c.s.signals.stop.Done()
		err = errInterrupted
	}
	retried := int(failed.Load())
	return consumeResult{
		Acked: out.Acked, Retried: retried, Dead: out.Dead,
		Returned: out.Retried - retried, Dropped: out.Expired + out.Cancelled,
	}, err
}

// sources opens the queues.
func (c *consumeCmd) sources(client lua.Client) (from []queue.Source, err error) {
	o := &queue.Options{Prefix: c.s.prefix, Tag: c.s.tag, Lease: c.lease, MaxFailures: c.attempts}
	o.Dead = queue.DeadLimits{Jobs: c.dead}
	if c.dead == 0 { // the bounds are the application's, and without any no job is deleted
		o.Dead = queue.DeadLimits{Jobs: -1, Stored: true}
	}
	for _, w := range c.weighted {
		q, err := queue.New(client, w.name, o)
		if err != nil {
			return nil, err
		}
		from = append(from, queue.Source{Queue: q, Weight: w.weight})
	}
	return from, nil
}

// delay is the back-off.
func (c *consumeCmd) delay(failures int) time.Duration {
	d := c.backoff
	for i := 1; i < failures && d < time.Hour; i++ {
		d *= 2
	}
	return min(d, max(time.Hour, c.backoff))
}

// work runs the command for one job.
func (c *consumeCmd) work(ctx context.Context, d *queue.Delivery) error {
	cmd := exec.Command(c.path, c.s.child[1:]...)
	cmd.Args[0] = c.s.child[0]
	cmd.Env = append(os.Environ(),
		"LUATOMIC_QUEUE="+d.Queue().Name(),
		"LUATOMIC_ID="+d.ID,
		"LUATOMIC_ATTEMPT="+strconv.Itoa(d.Attempt),
		"LUATOMIC_ENQUEUED_AT="+strconv.FormatInt(d.EnqueuedAt.UnixMilli(), 10),
		"LUATOMIC_DEADLINE="+strconv.FormatInt(d.Deadline().UnixMilli(), 10),
	)
	cmd.Stdin = bytes.NewReader(d.Body)
	// A file, so that the output does not depend on how fast this process reads.
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	running, err := c.s.startChild(cmd, false)
	if err != nil {
		return queue.Decline(err) // the command has not begun
	}
	err = c.s.await(ctx, running)
	if unfinished, ok := errors.AsType[*unfinishedError](err); ok {
		c.s.warn(&queue.JobError{
			Queue: d.Queue().Name(), Tag: d.Queue().Tag(), ID: d.ID, Kind: d.Kind, Attempt: d.Attempt,
			Outcome: queue.OutcomeRetried, Err: unfinished,
		})
		return queue.Snooze(0)
	}
	return err
}
