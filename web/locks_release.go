package web

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/lock"
)

// released is the result of a release.
type released struct {
	Kind string    `json:"kind"`
	Name show.Name `json:"name"`
	// Released is false where the holder that was meant does not hold it any more.
	Released bool `json:"released"`
}

// release takes a lock from the holder with that fence, or a permit from the holder with that mark, and from no other.
func (h *handler) release(ctx context.Context, q *request) (answer, error) {
	if err := h.need(q.role, Locks, "take locks away"); err != nil {
		return answer{}, err
	}
	kind, name := q.of("kind"), q.of("name")
	if !slices.Contains(lockKinds, kind) {
		return answer{}, faultf(http.StatusBadRequest, "It is lock, rw or semaphore.", "No lock is of the kind %q.",
			shown(40, kind))
	}
	locker := lock.New(h.writer, &lock.Options{Prefix: h.opts.Prefix})
	defer func() { _ = locker.Close() }()
	done, err := takeAway(ctx, locker, q, kind, name)
	n := 0
	if done {
		n = 1
	}
	h.report(q, Action{Verb: "release", Target: kind + " " + name, Done: n, Err: err})
	switch {
	case err != nil:
		return answer{}, err
	case !done:
		return answer{}, faultf(http.StatusConflict, "Nothing was changed. Read the lock again.",
			"The holder that was meant does not hold %q any more.", shown(128, name))
	}
	return answer{page: "released", title: "Released", data: released{kind, show.Name(name), true}}, nil
}

func takeAway(ctx context.Context, l *lock.Locker, q *request, kind, name string) (bool, error) {
	if kind == plainLock {
		fence, err := strconv.ParseInt(q.get("fence"), 10, 64)
		if err != nil || fence <= 0 {
			return false, faultf(http.StatusBadRequest, "Send the fence that the page shows.", "The fence is missing.")
		}
		return l.ForceRelease(ctx, name, fence)
	}
	_, tokens, err := readLock(ctx, l, q.role, kind, name)
	token, holds := tokens[q.get("permit")]
	switch {
	case err != nil || !holds:
		return false, err
	case kind == readWrite:
		return l.RW(name).Revoke(ctx, token)
	}
	return l.Semaphore(name, 1).Revoke(ctx, token)
}
