package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/lock"
)

// The sorts of locks, as the parameter "kind" of an address.
const (
	plainLock = "lock"
	readWrite = "rw"
	semaphore = "semaphore"
)

var lockKinds = []string{plainLock, readWrite, semaphore}

// lockRow is a lock, read-write lock or semaphore as the page shows it. It has no token.
type lockRow struct {
	Kind  string    `json:"kind"`
	Name  show.Name `json:"name"`
	Held  bool      `json:"held"`
	Fence int64     `json:"fence,omitempty"`
	Note  string    `json:"note,omitempty"`
	// RemainingMS is what is left of the lease of a plain lock, or of its delay where it is not held.
	RemainingMS int64    `json:"remaining_ms"`
	Limit       int      `json:"limit,omitempty"`
	Used        int      `json:"used,omitempty"`
	Writing     bool     `json:"writing,omitempty"`
	Holders     []permit `json:"holders,omitempty"`
	// MoreHolders says that Holders are only those whose leases end first.
	MoreHolders bool     `json:"more_holders,omitempty"`
	Waiting     int      `json:"waiting"`
	Waiters     []string `json:"waiters,omitempty"`
}

// Remaining is what is left of the lease.
func (l lockRow) Remaining() time.Duration { return time.Duration(l.RemainingMS) * time.Millisecond }

// permit is a holder of a semaphore or of a read-write lock.
type permit struct {
	// Mark names the permit in a form. It does not tell its token.
	Mark        string `json:"permit"`
	Weight      int    `json:"weight"`
	Note        string `json:"note,omitempty"`
	RemainingMS int64  `json:"remaining_ms"`
}

// Remaining is what is left of the lease.
func (p permit) Remaining() time.Duration { return time.Duration(p.RemainingMS) * time.Millisecond }

// mark names a token without telling it.
func mark(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:8])
}

func (role Role) plainRow(i lock.Info) lockRow {
	row := lockRow{Kind: plainLock, Name: show.Name(i.Name), Held: i.Held, Fence: i.Fence,
		RemainingMS: i.Remaining.Milliseconds(), Waiting: i.Waiting}
	if role.Has(Texts) {
		row.Note, row.Waiters = i.Note, i.Waiters
	}
	return row
}

func (role Role) semaphoreRow(i lock.SemaphoreInfo) lockRow {
	row := lockRow{Kind: semaphore, Name: show.Name(i.Name), Held: i.Used > 0, Fence: i.Fence, Limit: i.Limit,
		Used: i.Used, Waiting: i.Waiting}
	return role.withHolders(row, i.Holders, i.Waiters)
}

func (role Role) readWriteRow(i lock.RWInfo) lockRow {
	row := lockRow{Kind: readWrite, Name: show.Name(i.Name), Held: i.Writing || i.Readers > 0, Fence: i.Fence,
		Writing: i.Writing, Used: i.Readers, Waiting: i.Waiting}
	return role.withHolders(row, i.Holders, i.Waiters)
}

// holdersShown are those of one lock of a list. Its own page has all that are read.
const holdersShown = 50

// short is the row for a list.
func (l lockRow) short() lockRow {
	if len(l.Holders) > holdersShown {
		l.Holders, l.MoreHolders = l.Holders[:holdersShown], true
	}
	return l
}

func (role Role) withHolders(row lockRow, holders []lock.Permit, waiters []string) lockRow {
	weight := 0
	for _, p := range holders {
		weight += p.Weight
		shown := permit{Mark: mark(p.Token), Weight: p.Weight, RemainingMS: p.Remaining.Milliseconds()}
		if role.Has(Texts) {
			shown.Note = p.Note
		}
		row.Holders = append(row.Holders, shown)
	}
	row.MoreHolders = weight < row.Used
	if role.Has(Texts) {
		row.Waiters = waiters
	}
	return row
}

type locksData struct {
	Now   time.Time `json:"now"`
	Kind  string    `json:"kind"`
	Name  show.Name `json:"name,omitempty"`
	Locks []lockRow `json:"locks"`
	// Partial says that the search ended before it had seen all keys, or enough locks.
	Partial bool `json:"partial"`
}

// Kinds are the tabs.
func (locksData) Kinds() []string { return lockKinds }

// locksShown are those of one page.
const locksShown = 200

// locks shows one lock by its name, or those that a bounded search finds.
func (h *handler) locks(ctx context.Context, q *request) (answer, error) {
	kind := q.of("kind")
	if kind == "" {
		kind = plainLock
	}
	if !slices.Contains(lockKinds, kind) {
		return answer{}, faultf(http.StatusBadRequest, "It is lock, rw or semaphore.", "No lock is of the kind %q.",
			shown(40, kind))
	}
	data := locksData{Now: time.Now(), Kind: kind, Name: show.Name(q.of("name"))}
	locker := lock.New(h.client, &lock.Options{Prefix: h.opts.Prefix})
	defer func() { _ = locker.Close() }()
	var err error
	if data.Name != "" {
		var row lockRow
		row, _, err = readLock(ctx, locker, q.role, kind, q.of("name"))
		data.Locks = append(data.Locks, row)
	} else {
		err = data.search(ctx, h, locker, q.role)
	}
	if err != nil {
		return answer{}, err
	}
	return answer{page: "locks", title: "Locks", data: data}, nil
}

// readLock reads one lock, and the tokens of its holders by their marks.
func readLock(ctx context.Context, l *lock.Locker, role Role, kind, name string) (lockRow, map[string]string, error) {
	tokens := make(map[string]string)
	note := func(holders []lock.Permit) {
		for _, p := range holders {
			tokens[mark(p.Token)] = p.Token
		}
	}
	switch kind {
	case readWrite:
		info, err := l.RW(name).Info(ctx)
		note(info.Holders)
		return role.readWriteRow(info), tokens, err
	case semaphore:
		info, err := l.Semaphore(name, 1).Info(ctx)
		note(info.Holders)
		return role.semaphoreRow(info), tokens, err
	}
	info, err := l.Info(ctx, name)
	return role.plainRow(info), tokens, err
}

// search finds locks by SCAN, within ScanFor.
func (d *locksData) search(ctx context.Context, h *handler, l *lock.Locker, role Role) error {
	within, cancel := context.WithTimeout(ctx, ScanFor)
	defer cancel()
	var err error
	switch d.Kind {
	case readWrite:
		err = collect(d, l.ListRW(within), role.readWriteRow)
	case semaphore:
		err = collect(d, l.ListSemaphores(within), role.semaphoreRow)
	default:
		err = collect(d, l.List(within), role.plainRow)
	}
	if err != nil {
		d.Partial, err = h.searchEnded(ctx, within, err, len(d.Locks) > 0)
	}
	slices.SortFunc(d.Locks, func(a, b lockRow) int { return cmp.Compare(a.Name, b.Name) })
	d.Locks = slices.CompactFunc(d.Locks, func(a, b lockRow) bool { return a.Name == b.Name })
	return err
}

// searchEnded reports that a search has ended with its time, and not with the server, or with one server of several:
// then it may have found something.
func (h *handler) searchEnded(ctx, within context.Context, err error, found bool) (partial bool, _ error) {
	switch {
	case found && servers.Away(err):
		return true, nil
	case within.Err() == nil:
		return false, err
	}
	return true, servers.Answers(ctx, h.client)
}

func collect[T any](d *locksData, found iter.Seq2[T, error], row func(T) lockRow) error {
	for info, err := range found {
		if err != nil {
			return err
		}
		if len(d.Locks) == locksShown {
			d.Partial = true
			return nil
		}
		d.Locks = append(d.Locks, row(info).short())
	}
	return nil
}

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
