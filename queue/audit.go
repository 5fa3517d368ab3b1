package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
)

// Audited is what an audit found. A queue becomes inconsistent when something other than this package changes its keys:
// a key is deleted or evicted, some keys are restored, or a failover loses writes.
type Audited struct {
	// Checked counts the bodies that were checked.
	Checked int
	// Lost jobs have a body and are neither ready, scheduled, leased nor dead: no worker would receive them. Lost has
	// the first 100 ids, LostTotal is their number.
	Lost      []string
	LostTotal int
	// Ghosts are ids that are ready, scheduled, leased or dead and have no body: what these jobs were is lost. Ghosts
	// has the first 100, GhostTotal is their number.
	Ghosts     []string
	GhostTotal int
	// StaleNames counts unique names that deleted jobs hold, so that no other job can get them. It also counts names
	// whose hold has lost its end, which another job would get, and those of which one of two fields is lost: another
	// job would get the name, or nothing would free it.
	StaleNames int
	// StaleCounts counts the failures, options and marks of deleted jobs, which nothing else would remove. It also
	// counts entries in ready without their mark and marks without an entry: a take would deliver a cancelled or dead
	// job, a requeue would lose one.
	StaleCounts int
	// DeadBytes is what must be added to the stored size of the dead set to correct it. A size that is no number counts
	// as -1.
	DeadBytes int
	// Repaired counts the repairs.
	Repaired int
}

// OK reports that the audit found nothing. It cannot find what is stored only once, because its loss leaves no trace:
// options, failures, a pause, a limit, the cancel of a job that a worker has, or of a job that was ready over a minute
// ago or became ready in the millisecond of its cancel.
func (a *Audited) OK() bool {
	return a.LostTotal+a.GhostTotal+a.StaleNames+a.StaleCounts == 0 && a.DeadBytes == 0
}

// Audit finds inconsistencies, such as after a restore, an eviction or a manual DEL. It repairs them if repair is true.
// A lost job becomes ready immediately. Its former state is unknown, so a scheduled job runs early and a dead one runs
// again. One that was cancelled gives up its unique name, and the next take deletes it. Ghosts, stale names and stale
// counts are removed. The next take removes the entry of a ghost that is ready; a job that is pushed with its id before
// that is a duplicate. A hold without an end then lasts until its job ends, and a living job gets the lost field of its
// hold back. A mark is set or removed.
//
// Without repair Audit changes nothing and is safe at any time. Repair after such an event, while the queue is idle:
// with more than 1000 ready jobs, Audit can take a job that moves during the whole audit for lost. That job is then
// delivered twice, never lost. After an error the repairs made before it stay.
//
// Audit reads in pages, so no command takes the server more than a few milliseconds. A script checks each suspect again
// before it counts. The process holds the ids of ready jobs in memory. Servers before Redis 7.4 have no HSCAN NOVALUES
// and send the bodies too. Keys: r, s, b, l, n, d, u, ux, c, w, o, f. Cost: O(n), several round trips for each 100 to
// 1000 jobs.
func (q *Queue) Audit(ctx context.Context, repair bool) (Audited, error) {
	a := &audit{queue: q, repair: repair, pageSize: firstPage}
	steps := []func(context.Context) error{
		a.findLost, a.findGhosts, a.findCounts, a.findNames, a.findEnds, a.findMarks, a.findHollow,
		a.fixDeadBytes,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return a.out, q.wrap("audit of", plainError(ctx, q.client, err, q.typed()...))
		}
	}
	if a.tooLong != nil {
		return a.out, q.wrap("audit of", a.tooLong)
	}
	return a.out, nil
}

// audit is one Audit. It reads the queue in pages while others change it, so what it finds are suspects.
type audit struct {
	queue  *Queue
	repair bool
	out    Audited

	ready    map[string]string // id to the stamp of its entry, as read last
	hollow   map[string]string // as ready was read first, without the ids that have a body
	counted  map[string]bool   // unique names that were found before their ends are looked at
	pageSize int64             // fields of the next HSCAN
	byValues bool              // the server has no HSCAN NOVALUES
	tooLong  error             // a suspect that no call can name: it was not judged
}

// findLost finds suspects: bodies whose id is in no state. A job can move from one state to another between two reads,
// so findLost reads the ready list again for the missing ones.
func (a *audit) findLost(ctx context.Context) error {
	var err error
	if a.ready, err = a.readyIDs(ctx); err != nil {
		return err
	}
	a.hollow = maps.Clone(a.ready)
	var missing []string
	err = a.scanHash(ctx, a.queue.keys.Bodies, false, func(page []string) error {
		a.out.Checked += len(page)
		for _, id := range page {
			delete(a.hollow, id)
		}
		page = slices.DeleteFunc(page, func(id string) bool { return a.ready[id] != "" })
		stateless, err := a.withoutState(ctx, page)
		missing = append(missing, stateless...)
		return err
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	if a.ready, err = a.readyIDs(ctx); err != nil {
		return err
	}
	var suspects []queuescript.MendSuspect
	for _, id := range missing {
		if a.ready[id] == "" {
			suspects = append(suspects, queuescript.MendSuspect{Kind: queuescript.MendKindLost, ID: id})
		}
	}
	return a.judge(ctx, suspects, func(s queuescript.MendSuspect, verdict int64) {
		if verdict == 2 { // only the mark of a cancelled job
			a.out.StaleCounts++
			return
		}
		a.out.LostTotal++
		a.out.Lost = appendNamed(a.out.Lost, s.ID)
	})
}

// findGhosts finds suspects: ids that have a state and no body.
func (a *audit) findGhosts(ctx context.Context) error {
	var suspects []queuescript.MendSuspect
	k := &a.queue.keys
	for _, key := range []string{k.Scheduled, k.Leases, k.Dead} {
		err := a.scanSet(ctx, key, func(ids []string) error {
			return a.withoutBody(ctx, ids, func(i int) {
				suspects = append(suspects, queuescript.MendSuspect{Kind: queuescript.MendKindGhost, ID: ids[i]})
			})
		})
		if err != nil {
			return err
		}
	}
	return a.judge(ctx, suspects, a.ghost)
}

func (a *audit) ghost(s queuescript.MendSuspect, _ int64) {
	a.out.GhostTotal++
	a.out.Ghosts = appendNamed(a.out.Ghosts, s.ID)
}

// findCounts finds suspects: failures and options of deleted jobs.
func (a *audit) findCounts(ctx context.Context) error {
	var suspects []queuescript.MendSuspect
	for _, key := range []string{a.queue.keys.Failures, a.queue.keys.Options} {
		err := a.scanHash(ctx, key, false, func(page []string) error {
			for i := range page {
				page[i] = strings.TrimSuffix(page[i], "\n") // a count and a reason are two fields
			}
			return a.withoutBody(ctx, page, func(i int) {
				suspects = append(suspects, queuescript.MendSuspect{Kind: queuescript.MendKindCount, ID: page[i]})
			})
		})
		if err != nil {
			return err
		}
	}
	return a.judge(ctx, suspects, func(queuescript.MendSuspect, int64) { a.out.StaleCounts++ })
}

// fixDeadBytes compares the counter with the sum of the dead bodies. The script corrects the counter only if that did
// not change meanwhile; after three attempts the difference is left for the next audit.
func (a *audit) fixDeadBytes(ctx context.Context) error {
	for range 3 {
		text, err := a.deadBytes(ctx)
		if err != nil {
			return err
		}
		sum, err := a.sumDead(ctx)
		stored := bytesOf(text)
		if err != nil || sum == stored {
			return err
		}
		r, err := queuescript.Mend(ctx, a.queue.client, a.params(text, sum, nil))
		if err != nil {
			return err
		}
		if r.Corrected {
			a.out.DeadBytes = int(sum - stored)
			a.countRepaired()
			return nil
		}
	}
	return nil
}

// bytesOf returns the size that a text of the counter means, -1 for a text to which Redis cannot add.
func bytesOf(text string) int64 {
	if text == noBytes {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		return -1
	}
	return n
}

// typed is a key and the type of its value.
type typed struct{ key, kind string }

// plainError describes the refusal of a plain command as the runtime describes the refusal of a script: the error of a
// wrong type names the key and both types, if a search of at most a second finds them. Other errors stay as they are.
func plainError(ctx context.Context, client lua.Client, err error, keys ...typed) error {
	if _, script := err.(*lua.Error); script || !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, k := range keys {
		if held, failed := client.Type(ctx, k.key).Result(); failed == nil && held != "none" && held != k.kind {
			return fmt.Errorf("%w: key %q holds a %s, not a %s: %w", lua.ErrWrongType, k.key, held, k.kind, err)
		}
	}
	return fmt.Errorf("%w: %w", lua.ErrWrongType, err)
}

// typed returns the keys that an audit reads, with their types.
func (q *Queue) typed() []typed {
	k := &q.keys
	return []typed{
		{k.Ready, "list"}, {k.Scheduled, "zset"}, {k.Bodies, "hash"}, {k.Leases, "zset"}, {k.Failures, "hash"},
		{k.Dead, "zset"}, {k.Unique, "hash"}, {k.Expiry, "zset"}, {k.Control, "hash"}, {k.Options, "hash"},
		{k.Finished, "zset"},
	}
}

const (
	maxSuspects = 100 // in one script
	maxNamed    = 100 // ids in Audited
)

// judge runs the script, which checks each suspect again and repairs it in the same step. It calls f for each confirmed
// suspect.
func (a *audit) judge(
	ctx context.Context, suspects []queuescript.MendSuspect, f func(s queuescript.MendSuspect, verdict int64),
) error {
	// A scan can return an item twice.
	slices.SortFunc(suspects, func(x, y queuescript.MendSuspect) int {
		return strings.Compare(x.ID+"\n"+x.Name, y.ID+"\n"+y.Name)
	})
	size := func(s queuescript.MendSuspect) int { return len(s.ID) + len(s.Name) }
	for chunk := range chunks(slices.Compact(suspects), maxSuspects, size) {
		r, err := queuescript.Mend(ctx, a.queue.client, a.params(noBytes, -1, chunk))
		switch {
		case errors.Is(err, lua.ErrTooLarge): // the others are judged
			a.tooLong = err
			continue
		case err != nil:
			return err
		}
		for i, verdict := range r.Verdicts {
			if verdict != 0 && i < len(chunk) {
				f(chunk[i], verdict)
				a.countRepaired()
			}
		}
	}
	return nil
}

func (a *audit) countRepaired() {
	if a.repair {
		a.out.Repaired++
	}
}

// appendNamed adds an id to ids, up to maxNamed of them.
func appendNamed(ids []string, id string) []string {
	if len(ids) < maxNamed {
		ids = append(ids, id)
	}
	return ids
}

// params returns the parameters of one repair: the suspects, and the size of the dead set as it was read and as it
// should be.
func (a *audit) params(from string, to int64, suspects []queuescript.MendSuspect) queuescript.MendParams {
	p := a.queue.repairParams()
	p.Mend, p.From, p.To, p.Suspects = a.repair, from, to, suspects
	return p
}
