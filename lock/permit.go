package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// permits is the protocol of the permits of a Semaphore or an RWLock: scripts/lock/sem_*.lua.
type permits struct{ client lua.Client }

func (p *permits) acquire(ctx context.Context, r *request, a attempt) (lockscript.AcquireResult, error) {
	o := r.opts
	result, err := lockscript.SemAcquire(ctx, p.client, lockscript.SemAcquireParams{
		Permits: r.keys.Record, Queue: r.keys.Queue, Owner: r.token, Limit: r.limit, TTL: o.TTL,
		Entry: a.entry, Note: o.Note, Channel: r.channel, Floor: r.floor.Last(),
	})
	out := lockscript.AcquireResult{
		Acquired: result.Acquired, Fence: result.Fence, Remaining: result.Remaining, Waiting: result.Waiting,
		Holder: result.Holder, Now: result.Now,
	}
	switch {
	case err != nil:
	case result.Acquired:
		out.Remaining = max(result.Remaining, time.Microsecond) // a repeat in the last ms of the lease: it is over
	case result.Place == lockscript.SemAcquirePlaceRefused:
		err = &LimitError{Name: r.name, Weight: weightOf(r.token), Limit: int(result.Limit)}
	case result.Place == lockscript.SemAcquirePlaceVoid:
		out.Place = lockscript.AcquirePlaceVoid
	case result.Place == lockscript.SemAcquirePlaceJoined:
		out.Place = lockscript.AcquirePlaceJoined
	case result.Place == lockscript.SemAcquirePlaceWaiting:
		out.Place = lockscript.AcquirePlaceWaiting
	}
	return out, err
}

func (p *permits) entry(r *request, claim time.Duration) string {
	return r.token + " " + milliseconds(claim) + "\n" + r.opts.Note
}

func (p *permits) extend(b *lua.Batch, r *request, ttl time.Duration) func() error {
	future := lockscript.SemExtendIn(b, lockscript.SemExtendParams{
		Permits: r.keys.Record, Owner: r.token, TTL: ttl, Note: r.opts.Note,
	})
	return func() error {
		state, err := future.Get()
		switch {
		case err != nil:
			return fmt.Errorf("luatomic: extend %q: %w", r.name, err)
		case state == lockscript.SemExtendResultRevoked:
			return r.revoked()
		case state != lockscript.SemExtendResultExtended:
			return r.lost(false)
		}
		return nil
	}
}

func (p *permits) release(ctx context.Context, r *request, _ int64) error {
	return p.leave(ctx, r, "", lockscript.SemReleaseHowRelease)
}

func (p *permits) withdraw(ctx context.Context, r *request, entry string) error {
	err := p.leave(ctx, r, entry, lockscript.SemReleaseHowRelease)
	if errors.Is(err, ErrLost) {
		return nil
	}
	return err
}

// void gives the permit back: no LockDelay follows it.
func (p *permits) void(ctx context.Context, r *request) error { return p.withdraw(ctx, r, "") }

func (p *permits) giveBack(ctx context.Context, r *request) error {
	return p.leave(ctx, r, "", lockscript.SemReleaseHowUnconfirmed)
}

func (p *permits) leave(ctx context.Context, r *request, entry string, how lockscript.SemReleaseHow) error {
	state, err := lockscript.SemRelease(ctx, p.client, lockscript.SemReleaseParams{
		Permits: r.keys.Record, Queue: r.keys.Queue, Owner: r.token, Entry: entry, Note: r.opts.Note, How: how,
		Channel: r.channel,
	})
	switch {
	case err != nil:
		return recordError(err, r.keys.Record)
	case state == lockscript.SemReleaseResultExpired:
		return r.lost(false)
	case state == lockscript.SemReleaseResultRevoked:
		return r.revoked()
	}
	return nil
}

// permitSet is what a semaphore and a read-write lock have in common.
type permitSet struct {
	locker *Locker
	name   string
	keys   keys.Lock
	bad    error
}

// newLease makes the request of one acquire. Nothing is sent, and nothing is held yet.
func (s *permitSet) newLease(weight int, limit int64) (*Lease, error) {
	if s.bad != nil {
		return nil, fmt.Errorf("luatomic: %w", s.bad)
	}
	h := s.locker.hub
	token := h.tokens.Next() + ":" + strconv.Itoa(weight)
	l := &Lease{request: h.request(s.name, s.keys, token, &s.locker.opts, &h.permits), hub: h}
	l.request.limit = limit
	return l, nil
}

func (s *permitSet) resize(ctx context.Context, limit int64) error {
	h := s.locker.hub
	r := h.request(s.name, s.keys, h.tokens.Next(), &s.locker.opts, &h.permits)
	return r.voidAfter(ctx, func(ctx context.Context) error {
		_, err := lockscript.SemResize(ctx, h.client, lockscript.SemResizeParams{
			Permits: s.keys.Record, Queue: s.keys.Queue, Size: limit, Channel: r.channel, Request: r.token,
		})
		return err
	})
}

func (s *permitSet) info(ctx context.Context) (SemaphoreInfo, error) {
	r, err := lockscript.SemInfoResult{}, s.bad
	if err == nil {
		r, err = lockscript.SemInfo(ctx, s.locker.hub.client, lockscript.SemInfoParams{
			Permits: s.keys.Record, Queue: s.keys.Queue, Max: shownHolders, Waiters: shownWaiters,
		})
	}
	if err != nil {
		return SemaphoreInfo{}, fmt.Errorf("luatomic: info of %q: %w", s.name, recordError(err, s.keys.Record))
	}
	return permitInfo(s.name, s.keys.Record, r), nil
}

func permitInfo(name, key string, r lockscript.SemInfoResult) SemaphoreInfo {
	info := SemaphoreInfo{
		Name: name, Key: key, Limit: int(r.Limit), Used: int(r.Used), Fence: r.Fence, Waiting: int(r.Waiting),
	}
	notes := make(map[string]string)
	for _, member := range r.Members {
		if token, note, ok := strings.Cut(member, "\n"); ok {
			notes[token] = note
		}
	}
	for i, member := range r.Members[:min(len(r.Members), len(r.Remaining))] {
		if strings.Contains(member, "\n") {
			continue
		}
		info.Holders = append(info.Holders, Permit{
			Token: member, Weight: weightOf(member), Note: notes[member],
			Remaining: time.Duration(r.Remaining[i]) * time.Millisecond,
		})
	}
	info.Waiters = waiterNotes(r.Entries)
	return info
}

const shownHolders = 500

// weightOf returns the weight that a token has in it, and 0 for a text that is no token.
func weightOf(token string) int {
	_, text, _ := strings.Cut(token, ":")
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}

func (s *permitSet) revoke(ctx context.Context, token string) (bool, error) {
	err := s.bad
	if err == nil && (weightOf(token) == 0 || !strings.Contains(token, ".")) {
		err = fmt.Errorf("%w: no such token; luatomic locks show lists those that are held", lua.ErrOutOfRange)
	}
	var state lockscript.SemReleaseResult
	if err == nil {
		state, err = lockscript.SemRelease(ctx, s.locker.hub.client, lockscript.SemReleaseParams{
			Permits: s.keys.Record, Queue: s.keys.Queue, Owner: token, How: lockscript.SemReleaseHowRevoke,
			Channel: s.locker.hub.channelOf(s.keys),
		})
	}
	if err == nil && state == lockscript.SemReleaseResultReleased {
		s.locker.hub.notifyRevoked(ctx, token, "")
	}
	if err != nil {
		return false, fmt.Errorf("luatomic: revoke a permit of %q: %w", s.name, recordError(err, s.keys.Record))
	}
	return state == lockscript.SemReleaseResultReleased, nil
}
