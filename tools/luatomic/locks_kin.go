package main

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"regexp"

	"github.com/luatomic/luatomic/lock"
)

// lockKin is which kind of lock a command is about.
type lockKin string

const (
	plainLock  lockKin = ""
	readWrite  lockKin = "rw"
	semaphores lockKin = "semaphore"
)

func (k *lockKin) flag(fs *flag.FlagSet) {
	fs.Func("kind", "`KIND` of lock: rw (read-write locks), semaphore, or lock, the default", func(v string) error {
		switch v {
		case "lock":
			*k = plainLock
		case string(readWrite), string(semaphores):
			*k = lockKin(v)
		default:
			return fmt.Errorf("the kinds are lock, rw and semaphore")
		}
		return nil
	})
}

// kinResult is what is known of a read-write lock or a semaphore, as the output shows it.
type kinResult struct {
	Name    string         `json:"name"`
	Kind    lockKin        `json:"kind"`
	Writing *bool          `json:"writing,omitempty"`
	Readers *int           `json:"readers,omitempty"`
	Limit   *int           `json:"limit,omitempty"`
	Used    *int           `json:"used,omitempty"`
	Fence   *int64         `json:"fence"`
	Holders []holderResult `json:"holders"`
	Waiting int            `json:"waiting"`
	Waiters []string       `json:"waiters"`
	Key     string         `json:"key"`
}

type holderResult struct {
	Token       string `json:"token"`
	Weight      int    `json:"weight"`
	Note        string `json:"note"`
	RemainingMS int64  `json:"remaining_ms"`
}

const kinOutput = `{"name","kind","writing","readers" or "limit","used","fence","holders":[{"token","weight","note","remaining_ms"}],"waiting","waiters","key"}`

func (s *session) emitRW(info lock.RWInfo) error {
	return s.emitKin(kinResult{
		Name: info.Name, Kind: readWrite, Writing: &info.Writing, Readers: &info.Readers, Waiting: info.Waiting, Waiters: info.Waiters, Key: info.Key,
	}, info.Fence, info.Holders)
}

func (s *session) emitSemaphore(info lock.SemaphoreInfo) error {
	return s.emitKin(kinResult{
		Name: info.Name, Kind: semaphores, Limit: &info.Limit, Used: &info.Used, Waiting: info.Waiting, Waiters: info.Waiters, Key: info.Key,
	}, info.Fence, info.Holders)
}

func (s *session) emitKin(out kinResult, fence int64, holders []lock.Permit) error {
	if fence != 0 {
		out.Fence = &fence
	}
	out.Holders = make([]holderResult, len(holders))
	for i, h := range holders {
		out.Holders[i] = holderResult{h.Token, h.Weight, h.Note, h.Remaining.Milliseconds()}
	}
	if out.Waiters == nil {
		out.Waiters = []string{}
	}
	return s.emit(out)
}

// emitAll shows what a list yields and the pattern matches.
func emitAll[T any](list iter.Seq2[T, error], name func(T) string, matches *regexp.Regexp, emit func(T) error) error {
	for info, err := range list {
		if err == nil && matches.MatchString(name(info)) {
			err = emit(info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (k lockKin) show(ctx context.Context, s *session, locker *lock.Locker) error {
	switch k {
	case readWrite:
		info, err := locker.RW(s.args[0]).Info(ctx)
		if err != nil {
			return err
		}
		return s.emitRW(info)
	case semaphores:
		info, err := locker.Semaphore(s.args[0], 1).Info(ctx)
		if err != nil {
			return err
		}
		return s.emitSemaphore(info)
	}
	info, err := locker.Info(ctx, s.args[0])
	if err != nil {
		return err
	}
	return s.emitLock(info)
}

// checkRelease refuses what does not go together: a fence is of a plain lock's one holder.
func (k lockKin) checkRelease(fence int64, token string) error {
	switch {
	case k == plainLock && token != "":
		return usagef("--token is for --kind rw and --kind semaphore; a plain lock has one holder, named by --fence")
	case k != plainLock && fence != 0:
		return usagef("--fence is for plain locks; --token says which of the holders")
	case k != plainLock && token == "":
		return usagef("--token is missing: it says which of the holders; luatomic locks show --kind %s lists them", k)
	}
	return nil
}

type revokeResult struct {
	Name     string `json:"name"`
	Released bool   `json:"released"`
	Token    string `json:"token"`
}

func (k lockKin) revoke(ctx context.Context, s *session, locker *lock.Locker, token string) error {
	revoke := locker.Semaphore(s.args[0], 1).Revoke
	if k == readWrite {
		revoke = locker.RW(s.args[0]).Revoke
	}
	done, err := revoke(ctx, token)
	if err != nil {
		return err
	}
	if !done {
		return fmt.Errorf("nobody holds %q with that token: nothing is released; luatomic locks show --kind %s lists the holders", s.args[0], k)
	}
	return s.emit(revokeResult{s.args[0], true, token})
}
