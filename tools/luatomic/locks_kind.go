package main

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"regexp"

	"github.com/luatomic/luatomic/lock"
)

// lockKind is the kind of lock that a command is about.
type lockKind string

const (
	plainLock  lockKind = ""
	readWrite  lockKind = "rw"
	semaphores lockKind = "semaphore"
)

func (k *lockKind) flag(fs *flag.FlagSet) {
	fs.Func("kind", "`KIND` of lock: rw (read-write locks), semaphore, or lock, the default", func(v string) error {
		switch v {
		case "lock":
			*k = plainLock
		case string(readWrite), string(semaphores):
			*k = lockKind(v)
		default:
			return fmt.Errorf("the kinds are lock, rw and semaphore")
		}
		return nil
	})
}

// sharedResult is a read-write lock or a semaphore as the output shows it.
type sharedResult struct {
	Name    string         `json:"name"`
	Kind    lockKind       `json:"kind"`
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

const sharedOutput = `{"name","kind","writing","readers" or "limit","used","fence",
  "holders":[{"token","weight","note","remaining_ms"}],"waiting","waiters","key"}`

func (s *session) emitRW(info lock.RWInfo) error {
	return s.emitShared(sharedResult{
		Name: info.Name, Kind: readWrite, Writing: &info.Writing, Readers: &info.Readers, Waiting: info.Waiting,
		Waiters: info.Waiters, Key: info.Key,
	}, info.Fence, info.Holders)
}

func (s *session) emitSemaphore(info lock.SemaphoreInfo) error {
	return s.emitShared(sharedResult{
		Name: info.Name, Kind: semaphores, Limit: &info.Limit, Used: &info.Used, Waiting: info.Waiting,
		Waiters: info.Waiters, Key: info.Key,
	}, info.Fence, info.Holders)
}

func (s *session) emitShared(out sharedResult, fence int64, holders []lock.Permit) error {
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

// emitAll emits what a list yields and the pattern matches.
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

func (k lockKind) show(ctx context.Context, s *session, locker *lock.Locker) error {
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

// checkRelease refuses flags that exclude each other: a fence names the one holder of a plain lock.
func (k lockKind) checkRelease(fence int64, token string) error {
	switch {
	case k == plainLock && token != "":
		return usagef("--token is for --kind rw and --kind semaphore; a plain lock has one holder, named by --fence")
	case k != plainLock && fence != 0:
		return usagef("--fence is for plain locks; name the holder with --token")
	case k != plainLock && token == "":
		return usagef("--token is missing; name one of the holders that luatomic locks show --kind %s lists", k)
	}
	return nil
}

type revokeResult struct {
	Name     string `json:"name"`
	Released bool   `json:"released"`
	Token    string `json:"token"`
}

func (k lockKind) revoke(ctx context.Context, s *session, locker *lock.Locker, token string) error {
	revoke := locker.Semaphore(s.args[0], 1).Revoke
	if k == readWrite {
		revoke = locker.RW(s.args[0]).Revoke
	}
	done, err := revoke(ctx, token)
	if err != nil {
		return err
	}
	if !done {
		return fmt.Errorf("cannot release %q: no holder has that token; luatomic locks show --kind %s lists the holders",
			s.args[0], k)
	}
	return s.emit(revokeResult{s.args[0], true, token})
}
