package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/luatomic/luatomic/lock"
)

// lockResult is a lock as the output shows it.
type lockResult struct {
	Name        label    `json:"name"`
	Held        bool     `json:"held"`
	Fence       *int64   `json:"fence"`
	Note        string   `json:"note"`
	RemainingMS int64    `json:"remaining_ms"`
	Waiting     int      `json:"waiting"`
	Waiters     []string `json:"waiters"`
	Key         label    `json:"key"`
}

const lockOutput = `{"name","held","fence","note","remaining_ms","waiting","waiters","key"}`

// lockList is what a command prints of locks of one kind.
type lockList struct{ *rows }

func (k lockKind) list(s *session) lockList {
	if k == plainLock {
		return lockList{s.rows("NAME", "HOLDER", "FENCE", "LEFT", "WAITING")}
	}
	part := "WEIGHT"
	if k == readWrite {
		part = "AS"
	}
	return lockList{s.rows("NAME", "USED", "WAITING", "TOKEN", part, "HOLDER", "LEFT")}
}

func (l lockList) plain(info lock.Info) error {
	out := lockResult{
		Name: label(info.Name), Held: info.Held, Note: info.Note, RemainingMS: info.Remaining.Milliseconds(),
		Waiting: info.Waiting, Waiters: info.Waiters, Key: label(info.Key),
	}
	if info.Fence != 0 {
		out.Fence = &info.Fence
	}
	holder := any(info.Note)
	if !info.Held {
		holder = paint(info.Remaining > 0, yellow, "free")
	}
	return l.add(out, out.Name, holder, info.Fence, rounded(info.Remaining), info.Waiting)
}

// withLocker runs f with a Locker on the user's server.
func (s *session) withLocker(f func(ctx context.Context, locker *lock.Locker) error) error {
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	locker := lock.New(client, &lock.Options{Prefix: s.prefix})
	defer func() { _ = locker.Close() }()
	err = f(s.signals.stop, locker)
	if err != nil && s.signals.stop.Err() != nil {
		return errInterrupted
	}
	return err
}

func locksLsCommand() *command {
	var kind lockKind
	return &command{
		name: "locks ls", args: "[PATTERN] [flags]", named: true,
		about: "List the locks that are held or waited for.",
		detail: `Scans the keys of the server, or of each master of a cluster, so its time grows with
the number of all keys. It lists locks under --prefix only. PATTERN is for names: * is any text, ?
one character; quote it. A lock that changes hands during the scan may be listed twice or not at
all. With --kind it lists read-write locks or semaphores.`,
		output: lockOutput + " for each lock, in no order; waiters: the notes of the first ten; with --kind " +
			sharedOutput,
		example: `luatomic locks ls 'nightly-*'`,
		flags:   kind.flag,
		check: func(s *session) error {
			if len(s.args) > 1 {
				return usagef("one pattern, but there are %d arguments: %q; quote it, "+
					"or the shell replaces it by names of files", len(s.args), s.args)
			}
			return nil
		},
		run: func(s *session) error {
			pattern := "*"
			if len(s.args) == 1 {
				pattern = s.args[0]
			}
			return s.withLocker(func(ctx context.Context, locker *lock.Locker) error {
				return kind.find(ctx, s, locker, pattern)
			})
		},
	}
}

// glob reports whether the pattern matches all of the name: * is any text, ? one character. Both may hold any bytes;
// one that is no part of a character counts as one.
func glob(pattern, name string) bool {
	p, n := 0, 0
	star, from := -1, 0 // the last star, and where what it stands for ends
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from, p = p, n, p+1
		case p < len(pattern) && pattern[p] == '?':
			p, n = p+1, next(name, n)
		case p < len(pattern) && pattern[p] == name[n]:
			p, n = p+1, n+1
		case star >= 0:
			from = next(name, from)
			p, n = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// next is where the character at a place ends.
func next(text string, at int) int {
	_, size := utf8.DecodeRuneInString(text[at:])
	return at + size
}

func locksShowCommand() *command {
	watch := &interval{}
	var kind lockKind
	return &command{
		name: "locks show", args: "NAME [flags]", named: true,
		about: "Show the holder of a lock and its waiters.",
		detail: `Only reads. The fence of a free lock is that of its last holder while the record is there,
else null: a lock that is released leaves none. A free lock with remaining_ms above 0 stays closed
for its lock delay. With --kind it is a read-write lock or a semaphore.`,
		output:  lockOutput + "; waiters: the notes of the first ten; with --kind " + sharedOutput,
		example: `luatomic locks show nightly --watch 2s`,
		flags: func(fs *flag.FlagSet) {
			fs.Var(watch, "watch", "show it again every `INTERVAL`, 1s if left out, until Ctrl-C")
			kind.flag(fs)
		},
		check: func(s *session) error {
			if err := watch.check(); err != nil {
				return err
			}
			return s.oneArg("lock")
		},
		run: func(s *session) error {
			return s.withLocker(func(ctx context.Context, locker *lock.Locker) error {
				return s.again(watch, func() error { return kind.show(ctx, s, locker) })
			})
		},
	}
}

// releaseResult is the object on stdout.
type releaseResult struct {
	Name     label  `json:"name"`
	Released bool   `json:"released"`
	Fence    int64  `json:"fence"`
	Note     string `json:"note"`
	Waiting  int    `json:"waiting"`
}

func locksReleaseCommand() *command {
	var fence int64
	var kind lockKind
	var token string
	return &command{
		name: "locks release", args: "NAME [flags]", named: true,
		about: "Take a lock from its holder, and give it to the first waiter.",
		detail: `The holder is notified; luatomic lock kills its command. Give the fence that locks show
prints: a holder that came later then keeps the lock. Without --fence the lock is taken from its
holder of this moment, whom stderr names. Exit code 1 if the lock is free or has another fence. A
read-write lock and a semaphore (--kind) have several holders: --token names the one that loses its
permit.`,
		output: `{"name","released","fence","note","waiting"}; fence and note: of its holder; waiting: how many wait;
  with --kind {"name","released","token"}`,
		example: `luatomic locks release nightly --fence 1795254588167521`,
		flags: func(fs *flag.FlagSet) {
			fs.Int64Var(&fence, "fence", 0, "`NUMBER`; release it only from the holder with this fence")
			fs.StringVar(&token, "token", "", "`TOKEN` of the holder, with --kind, as locks show has it")
			kind.flag(fs)
		},
		check: func(s *session) error {
			if fence < 0 {
				return usagef("--fence %d is no fence; write the number that luatomic locks show prints", fence)
			}
			if err := kind.checkRelease(fence, token); err != nil {
				return err
			}
			return s.oneArg("lock")
		},
		run: func(s *session) error {
			return s.withLocker(func(ctx context.Context, locker *lock.Locker) error {
				if kind != plainLock {
					return kind.revoke(ctx, s, locker, token)
				}
				return release(ctx, s, locker, fence)
			})
		},
	}
}

// changedHands bounds how often release reads the lock again because its holder changed.
const changedHands = 10

// release takes the lock away from the holder that it has read, and from no other, so that
// it can name it.
func release(ctx context.Context, s *session, locker *lock.Locker, fence int64) error {
	name := s.args[0]
	for range changedHands {
		info, err := locker.Info(ctx, name)
		switch {
		case err != nil:
			return err
		case !info.Held:
			return notHeld(info)
		case fence != 0 && fence != info.Fence:
			return fmt.Errorf("cannot release lock %q: %s holds it under fence %d, not %d; "+
				"luatomic locks show prints the fence", name, info.Note, info.Fence, fence)
		}
		done, err := locker.ForceRelease(ctx, name, info.Fence)
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		if fence == 0 {
			s.note("luatomic: lock %q was held by %s under fence %d", name, info.Note, info.Fence)
		}
		return s.emit(releaseResult{label(name), true, info.Fence, info.Note, info.Waiting})
	}
	return fmt.Errorf("cannot release lock %q: its holder changed %d times meanwhile; "+
		"name the fence that luatomic locks show prints with --fence", name, changedHands)
}

// notHeld is why there is nothing to release.
func notHeld(info lock.Info) error {
	if info.Remaining > 0 {
		return fmt.Errorf("lock %q is free, and closed for %v more by its lock delay: there is nothing to release",
			info.Name, info.Remaining)
	}
	return fmt.Errorf("lock %q is free: there is nothing to release", info.Name)
}

// stealResult is the object on stdout when no command follows.
type stealResult struct {
	Name  label   `json:"name"`
	Fence int64   `json:"fence"`
	Token string  `json:"token"`
	Key   label   `json:"key"`
	TTLMS int64   `json:"ttl_ms"`
	From  *string `json:"from"`
}

func locksStealCommand() *command {
	l := &lockCmd{}
	return &command{
		name: "locks steal", args: "NAME [flags]", child: true, bare: true, named: true,
		about: "Take a lock from its holder, ahead of all waiters.",
		detail: `The holder is notified; luatomic lock kills its command. With CMD it goes on as
luatomic lock does. Without CMD the lock is held for --ttl and then free, unless locks release frees
it before. A free lock is taken too.`,
		output: `{"name","fence","token","key","ttl_ms","from"}; from: the note of its holder until then, or null; CMD's
  own with CMD`,
		example: `luatomic locks steal nightly --ttl 1h --note 'maintenance'`,
		flags:   l.leaseFlags,
		check: func(s *session) error {
			if err := l.checkLease(s); err != nil || len(s.child) == 0 {
				return err
			}
			return l.look(s)
		},
		run: func(s *session) error {
			if len(s.child) > 0 {
				return l.runWith(s, l.steal)
			}
			return s.withLocker(func(ctx context.Context, locker *lock.Locker) error {
				return l.stealAlone(ctx, s, locker)
			})
		},
	}
}

func (l *lockCmd) steal(s *session, locker *lock.Locker) (*lock.Lease, error) {
	lease, err := locker.Steal(s.signals.stop, s.args[0])
	if err != nil && s.signals.stop.Err() != nil {
		return nil, errInterrupted
	}
	return lease, err
}

// stealAlone leaves the lock held, without a command.
func (l *lockCmd) stealAlone(ctx context.Context, s *session, locker *lock.Locker) error {
	locker = locker.With(l.opts)
	info, err := locker.Info(ctx, s.args[0])
	if err != nil {
		return err
	}
	lease, err := locker.Steal(ctx, s.args[0])
	if err != nil {
		return err
	}
	out := stealResult{Name: label(lease.Name()), Fence: lease.Fence(), Token: lease.Token(), Key: label(lease.Key()),
		TTLMS: l.opts.TTL.Milliseconds()}
	if info.Held {
		out.From = &info.Note
	}
	return s.emit(out)
}

// locksCommands are those that begin with locks.
func locksCommands() []*command {
	return []*command{locksLsCommand(), locksShowCommand(), locksReleaseCommand(), locksStealCommand()}
}
