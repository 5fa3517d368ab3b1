package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"

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
	Name    label          `json:"name"`
	Kind    lockKind       `json:"kind"`
	Writing *bool          `json:"writing,omitempty"`
	Readers *int           `json:"readers,omitempty"`
	Limit   *int           `json:"limit,omitempty"`
	Used    *int           `json:"used,omitempty"`
	Fence   *int64         `json:"fence"`
	Holders []holderResult `json:"holders"`
	Waiting int            `json:"waiting"`
	Waiters []string       `json:"waiters"`
	Key     label          `json:"key"`
}

type holderResult struct {
	Token       string `json:"token"`
	As          string `json:"as,omitempty"`
	Weight      int    `json:"weight,omitempty"`
	Note        string `json:"note"`
	RemainingMS int64  `json:"remaining_ms"`
}

const sharedOutput = `{"name","kind","writing","readers" or "limit","used","fence",
  "holders":[{"token","as" (writer or reader) or "weight","note","remaining_ms"}],"waiting","waiters","key"}`

func (l lockList) rw(info lock.RWInfo) error {
	used, as := fmt.Sprintf("%d readers", info.Readers), "reader"
	if info.Writing {
		used, as = "writing", "writer"
	}
	return l.shared(used, as, sharedResult{
		Name: label(info.Name), Kind: readWrite, Writing: &info.Writing, Readers: &info.Readers,
		Waiting: info.Waiting, Waiters: info.Waiters, Key: label(info.Key),
	}, info.Fence, info.Holders)
}

func (l lockList) semaphore(info lock.SemaphoreInfo) error {
	return l.shared(fmt.Sprintf("%d of %d", info.Used, info.Limit), "", sharedResult{
		Name: label(info.Name), Kind: semaphores, Limit: &info.Limit, Used: &info.Used,
		Waiting: info.Waiting, Waiters: info.Waiters, Key: label(info.Key),
	}, info.Fence, info.Holders)
}

// shared adds a lock, whose holders have a line each in the table. Those of a read-write lock have a part in place of a
// weight.
func (l lockList) shared(used, as string, out sharedResult, fence int64, holders []lock.Permit) error {
	if fence != 0 {
		out.Fence = &fence
	}
	out.Holders = make([]holderResult, len(holders))
	for i, h := range holders {
		out.Holders[i] = holderResult{Token: h.Token, As: as, Note: h.Note, RemainingMS: h.Remaining.Milliseconds()}
		if as == "" {
			out.Holders[i].Weight = h.Weight
		}
	}
	if !l.s.tables {
		return l.s.emit(out)
	}
	name := any(out.Name)
	for i, h := range holders {
		part := any(as)
		if as == "" {
			part = out.Holders[i].Weight
		}
		l.line(name, used, out.Waiting, h.Token, part, h.Note, rounded(h.Remaining))
		name, used = "", ""
	}
	if len(holders) == 0 {
		l.line(name, used, out.Waiting, "", "", "", "")
	}
	return nil
}

// find lists the locks of the kind whose names match.
func (k lockKind) find(ctx context.Context, s *session, locker *lock.Locker, pattern string) (err error) {
	out := k.list(s)
	switch k {
	case readWrite:
		err = addAll(locker.ListRW(ctx), func(i lock.RWInfo) string { return i.Name }, pattern, out.rw)
	case semaphores:
		err = addAll(locker.ListSemaphores(ctx), func(i lock.SemaphoreInfo) string {
			return i.Name
		}, pattern, out.semaphore)
	default:
		err = addAll(locker.List(ctx), func(i lock.Info) string { return i.Name }, pattern, out.plain)
	}
	if err != nil {
		return errors.Join(out.end(), err)
	}
	return out.endOr("no lock is held or waited for")
}

// addAll adds what a list yields and the pattern matches.
func addAll[T any](list iter.Seq2[T, error], name func(T) string, pattern string, add func(T) error) error {
	for info, err := range list {
		if err == nil && glob(pattern, name(info)) {
			err = add(info)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (k lockKind) show(ctx context.Context, s *session, locker *lock.Locker) (err error) {
	out, name := k.list(s), s.args[0]
	switch k {
	case readWrite:
		err = addOne(locker.RW(name).Info, ctx, out.rw)
	case semaphores:
		err = addOne(locker.Semaphore(name, 1).Info, ctx, out.semaphore)
	default:
		err = addOne(func(ctx context.Context) (lock.Info, error) { return locker.Info(ctx, name) }, ctx, out.plain)
	}
	if err != nil {
		return err
	}
	return out.end()
}

func addOne[T any](read func(context.Context) (T, error), ctx context.Context, add func(T) error) error {
	info, err := read(ctx)
	if err != nil {
		return err
	}
	return add(info)
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
	Name     label  `json:"name"`
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
		return fmt.Errorf("cannot release %q: no holder has that token; luatomic locks show --kind %s lists the "+
			"holders",
			s.args[0], k)
	}
	return s.emit(revokeResult{label(s.args[0]), true, token})
}
