package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
)

type lockCmd struct {
	wait  time.Duration
	begun time.Time // of the wait
	opts  lock.Options
	path  string
	// Of the read-write lock, not the plain lock.
	read, write bool

	dialect string
	heal    time.Duration
	fence   bool
}

func lockCommand() *command {
	l := &lockCmd{}
	return &command{
		name: "lock", args: "NAME [flags]", child: true, named: true,
		about: "Run a command while holding a lock.",
		detail: `CMD has this process' stdin, stdout and stderr, and LUATOMIC_FENCE, LUATOMIC_KEY and
LUATOMIC_TOKEN in its environment. The fence grows with each holder: send it along with writes, and
let the store refuse a smaller one than it has seen. The token names the lease, for guarded scripts.
The lease is renewed while CMD runs. If the lock is lost or taken away, or --max-hold is over, CMD
and what it started are killed: SIGTERM, after 2 s SIGKILL.
Waiters are served in order of arrival; a waiter that is interrupted leaves the queue. The lock does
not know what was done: the next process that gets it runs its CMD too. Readers
(--read) exclude writers (--write), not each other. Without either flag it is the plain lock of the
name, which is a lock of its own.
In another dialect a lock has no order, and no fence but that of --dialect plain with --fence; it
refuses the flags that it cannot honour, and the token is the value of its key.
SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGUSR1 and SIGUSR2 go to CMD, without a terminal SIGTSTP and
SIGCONT too; SIGKILL of this process also ends CMD on Linux, but not what CMD has started. The lock is
released when CMD has ended, in whatever way; a third Ctrl-C after that does not wait for the release.
The exit code is CMD's, 128 plus the number if a signal ended it, 127 if CMD is not found, 126 if it
cannot run; 75 to try later: the lock is held, --replicas did not confirm it, or --wait is over; 1 if
the lock was lost, the server cannot be used, or CMD ended with 0 and the release was not confirmed.`,
		output:  `CMD's own`,
		example: `luatomic lock nightly --ttl 30s --wait 5m -- sh -c 'echo fence $LUATOMIC_FENCE'`,
		flags: func(flags *flag.FlagSet) {
			l.leaseFlags(flags)
			o := &l.opts
			flags.DurationVar(&l.wait, "wait", 0, "`DURATION` to wait for the lock; without it one attempt")
			flags.BoolVar(&l.read, "read", false, "the read-write lock of that name, shared with other readers")
			flags.BoolVar(&l.write, "write", false, "the read-write lock of that name, alone")
			flags.DurationVar(&o.MaxHold, "max-hold", 0,
				"`DURATION` after which CMD is killed and the lock released; without it no limit")
			flags.DurationVar(&o.LockDelay, "lock-delay", 0,
				"`DURATION` for which the lock stays closed after a lease that ended without a release")
			flags.IntVar(&o.Replicas, "replicas", 0, "`NUMBER` of replicas that must confirm the lock within 1 s")
			dialectFlag(flags, &l.dialect, redisInAction, actionHero, plain)
			flags.BoolVar(&l.fence, "fence", false,
				"in the dialect plain: CMD gets a LUATOMIC_FENCE too, kept in a key of its own")
			flags.DurationVar(&l.heal, "heal", 0, "in the dialect redisinaction: "+
				"`DURATION` after which a lock without an end is free, its holder dead or not")
		},
		check: l.check,
		run:   l.run,
	}
}

// leaseFlags are those of every command that takes a lock.
func (l *lockCmd) leaseFlags(flags *flag.FlagSet) {
	flags.DurationVar(&l.opts.TTL, "ttl", 10*time.Second, "`DURATION` after which the lock of a dead holder is free")
	flags.StringVar(&l.opts.Note, "note", "", "`TEXT` that names the holder to others; host and process id if left out")
}

func (l *lockCmd) check(s *session) error {
	err := l.checkDialect()
	if err == nil && l.dialect == "" {
		err = l.checkLease(s)
	} else if err == nil {
		err = l.checkForeign(s)
	}
	if err != nil {
		return err
	}
	return l.look(s)
}

// look finds CMD. The exit codes of one that cannot run are those of a shell, as CMD's own are passed on.
func (l *lockCmd) look(s *session) (err error) {
	l.path, err = lookChild(s)
	return asShell(err)
}

// asShell gives the error of a command that cannot run its exit code.
func asShell(err error) error {
	var wrong *usageError
	switch {
	case err == nil, errors.As(err, &wrong):
		return err
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return &exitError{exitNotFound, err}
	}
	return &exitError{exitNotRunnable, err}
}

// checkLease validates the name and the flags; it fills in the note.
func (l *lockCmd) checkLease(s *session) error {
	if err := s.oneArg("lock"); err != nil {
		return err
	}
	o := &l.opts
	o.Prefix = s.prefix
	if err := errors.Join(
		atLeast("ttl", o.TTL, 100*time.Millisecond), atLeast("wait", l.wait, 0),
		atLeast("max-hold", o.MaxHold, 0), atLeast("lock-delay", o.LockDelay, 0),
	); err != nil {
		return err
	}
	switch {
	case o.Replicas < 0:
		return usagef("--replicas %d is out of range; write 0 or more", o.Replicas)
	case l.read && l.write:
		return usagef("both --read and --write; leave one of them out")
	case (l.read || l.write) && (o.LockDelay > 0 || o.Replicas > 0):
		return usagef("--lock-delay and --replicas are for plain locks; leave them out, or leave --read and --write " +
			"out")
	case len(o.Note) > maxNote:
		return usagef("--note has %d bytes, at most %d are possible; shorten it", len(o.Note), maxNote)
	}
	if o.Note == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown host"
		}
		o.Note = fmt.Sprintf("%s, process %d", host, os.Getpid())
	}
	return nil
}

// maxNote is what the library accepts.
const maxNote = 1024

func (l *lockCmd) run(s *session) error {
	if l.dialect != "" {
		return l.runForeign(s)
	}
	return l.runWith(s, l.obtain)
}

// runWith runs the command under the lease that obtain gets.
func (l *lockCmd) runWith(s *session, obtain func(*session, *lock.Locker) (*lock.Lease, error)) error {
	client, err := l.connect(s)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	locker := lock.New(client, &l.opts)
	defer func() { _ = locker.Close() }()
	lease, err := obtain(s, locker)
	if err != nil {
		return err
	}
	work, lost := l.runChild(s, lease.Keep, "LUATOMIC_FENCE="+strconv.FormatInt(lease.Fence(), 10),
		"LUATOMIC_KEY="+lease.Key(), "LUATOMIC_TOKEN="+lease.Token())
	// No context of a signal cuts the release short: the third signal after the child ends the program.
	return lockOutcome(s, work, lost, lease.Release(context.Background()))
}

// connect begins the wait. A server that is silent may answer later, as a lock may be free later.
func (l *lockCmd) connect(s *session) (redis.UniversalClient, error) {
	l.begun = time.Now()
	client, err := s.connect(s.signals.stop)
	if l.wait > 0 && errors.Is(err, errNoAnswer) {
		return nil, &exitError{exitTryLater, err}
	}
	return client, err
}

// lockOutcome is how the command ends.
func lockOutcome(s *session, work, lost, released error) error {
	switch {
	case lost != nil:
		return lost
	case released != nil:
		if errors.Is(released, lua.ErrNotExecuted) || errors.Is(released, lua.ErrOutcomeUnknown) {
			released = fmt.Errorf("%w; if the lock is still held, it becomes free when its --ttl is over", released)
		}
		s.warn(released)
		if work == nil {
			return &exitError{code: exitFailed}
		}
	}
	return work
}

// errWaited ends a wait for the lock.
var errWaited = errors.New("waited")

func (l *lockCmd) obtain(s *session, locker *lock.Locker) (*lock.Lease, error) {
	name := s.args[0]
	try, acquire := l.ways(locker, name)
	var lease *lock.Lease
	var err error
	if l.wait == 0 {
		lease, err = try(s.signals.stop)
	} else {
		ctx, cancel := context.WithDeadlineCause(s.signals.stop, l.begun.Add(l.wait), errWaited)
		defer cancel()
		lease, err = acquire(ctx)
		if err != nil && context.Cause(ctx) == errWaited {
			err = notObtained(name, l.wait, err)
		}
	}
	var held *lock.HeldError
	switch {
	case err == nil:
		return lease, nil
	case s.signals.stop.Err() != nil:
		return nil, errInterrupted
	case errors.As(err, &held):
		return nil, &exitError{exitTryLater, fmt.Errorf("%w; try later, or wait longer with --wait", held)}
	case errors.Is(err, lock.ErrNotReplicated):
		return nil, &exitError{exitTryLater, fmt.Errorf("%w; try later, or ask for fewer --replicas", err)}
	}
	return nil, err
}

// ways are the two ways to obtain the lock: one try, or waiting.
func (l *lockCmd) ways(locker *lock.Locker, name string) (try, acquire func(context.Context) (*lock.Lease, error)) {
	rw := locker.RW(name)
	switch {
	case l.read:
		return rw.RTry, rw.RAcquire
	case l.write:
		return rw.Try, rw.Acquire
	}
	return func(ctx context.Context) (*lock.Lease, error) { return locker.Try(ctx, name) },
		func(ctx context.Context) (*lock.Lease, error) { return locker.Acquire(ctx, name) }
}

// notObtained is the error of a wait that is over. Where the last attempt was cut short the
// holder is not known.
func notObtained(name string, wait time.Duration, err error) error {
	var held *lock.HeldError
	if errors.As(err, &held) {
		return held
	}
	return &exitError{exitTryLater, fmt.Errorf("lock %q was not obtained within %v; try later, "+
		"or wait longer with --wait", name, wait)}
}

// runChild runs the command under the lease. work is how the command ended, as the
// exit code; lost is not nil if the lease ended first: before the command was started, or it was killed.
func (l *lockCmd) runChild(s *session, keep func(context.Context) context.Context, env ...string) (work, lost error) {
	cmd := exec.Command(l.path, s.child[1:]...)
	cmd.Args[0] = s.child[0]
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	kept := keep(context.Background())
	if kept.Err() != nil {
		return nil, fmt.Errorf("%w; the command was not started", context.Cause(kept))
	}
	s.signals.holdPassed()
	running, err := s.startChild(cmd, true)
	if err != nil {
		return asShell(fmt.Errorf("cannot run %q: %w", s.child[0], err)), nil
	}
	defer s.signals.pass(running)()
	select {
	case <-running.done:
	case <-kept.Done():
		running.terminate()
		return nil, fmt.Errorf("%w; the command was killed", context.Cause(kept))
	}
	if running.code != 0 {
		return &exitError{code: running.code}, nil
	}
	return nil, nil
}
