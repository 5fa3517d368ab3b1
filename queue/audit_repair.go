package queue

import (
	"context"
	"errors"
	"slices"
	"strings"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
)

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
