package queue

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/servers"
)

// findNames finds suspects: unique names that deleted jobs hold, and holds of which one field is lost. A name is stored
// with its job, and the job with its name.
func (a *audit) findNames(ctx context.Context) error {
	var suspects []queuescript.MendSuspect
	err := a.scanHash(ctx, a.queue.keys.Unique, true, func(page []string) error {
		holds := holdsOf(page)
		ids := make([]string, len(holds))
		for i, hold := range holds {
			ids[i] = hold.ID
		}
		if err := a.withoutBody(ctx, ids, func(i int) { suspects = append(suspects, holds[i]) }); err != nil {
			return err
		}
		half, err := a.halfHolds(ctx, page, holds)
		suspects = append(suspects, half...)
		return err
	})
	if err != nil {
		return err
	}
	a.counted = map[string]bool{}
	return a.judge(ctx, suspects, func(s queuescript.MendSuspect, _ int64) {
		a.out.StaleNames++
		a.counted[s.Name] = true
	})
}

// holdsOf returns the hold that each field of a page with values is half of.
func holdsOf(page []string) (holds []queuescript.MendSuspect) {
	for i := 0; i+1 < len(page); i += 2 {
		name, id := strings.TrimPrefix(page[i], "k:"), page[i+1]
		if job, of := strings.CutPrefix(page[i], "j:"); of {
			name, id = page[i+1], job
		}
		holds = append(holds, queuescript.MendSuspect{Kind: queuescript.MendKindName, ID: id, Name: name})
	}
	return holds
}

// halfHolds returns the holds without their other field. The job of a name has the name of the job; the name of a job
// has a holder where it has an end, unless the job is dead.
func (a *audit) halfHolds(
	ctx context.Context, page []string, holds []queuescript.MendSuspect,
) (half []queuescript.MendSuspect, _ error) {
	others, names := make([]string, len(holds)), make([]string, len(holds))
	for i, hold := range holds {
		others[i], names[i] = "j:"+hold.ID, hold.Name
		if strings.HasPrefix(page[2*i], "j:") {
			others[i] = "k:" + hold.Name
		}
	}
	found, err := a.fields(ctx, a.queue.keys.Unique, "", others)
	if err != nil {
		return nil, err
	}
	ends, err := a.scores(ctx, a.queue.keys.Expiry, names)
	for i := range ends {
		if strings.HasPrefix(page[2*i], "j:") && found[i] == nil && ends[i] != 0 ||
			strings.HasPrefix(page[2*i], "k:") && found[i] != holds[i].Name {
			half = append(half, holds[i])
		}
	}
	return half, err
}

// findEnds finds suspects: holds of unique names without an end, and ends without a hold.
func (a *audit) findEnds(ctx context.Context) error {
	var suspects []queuescript.MendSuspect
	suspect := func(name string) {
		suspects = append(suspects, queuescript.MendSuspect{Kind: queuescript.MendKindEnd, Name: name})
	}
	k := &a.queue.keys
	err := a.scanHash(ctx, k.Unique, true, func(page []string) error {
		var names []string
		for i := 0; i < len(page); i += 2 {
			if name, held := strings.CutPrefix(page[i], "k:"); held {
				names = append(names, name)
			}
		}
		ends, err := a.scores(ctx, k.Expiry, names)
		for i, end := range ends {
			if end == 0 {
				suspect(names[i])
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	err = a.scanSet(ctx, k.Expiry, func(names []string) error {
		holders, err := a.fields(ctx, k.Unique, "k:", names)
		for i, holder := range holders {
			if holder == nil && !a.counted[names[i]] {
				suspect(names[i])
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	return a.judge(ctx, suspects, func(queuescript.MendSuspect, int64) { a.out.StaleNames++ })
}

// findMarks finds suspects: marks of entries that ready does not have, and entries whose mark is missing. A job may
// have become ready after the list was read, so findMarks reads the list again, after what the script compares.
func (a *audit) findMarks(ctx context.Context) error {
	suspects, err := a.unmarked(ctx)
	if err == nil {
		suspects, err = a.deadMarks(ctx, suspects)
	}
	if err != nil || len(suspects) == 0 {
		return err
	}
	if a.ready, err = a.readyIDs(ctx); err != nil {
		return err
	}
	suspects = slices.DeleteFunc(suspects, func(s queuescript.MendSuspect) bool {
		stamp, ready := a.ready[s.ID]
		switch s.Kind {
		case queuescript.MendKindUnmark:
			return ready
		case queuescript.MendKindMark:
			return !ready
		default:
			return stamp != s.Name
		}
	})
	return a.judge(ctx, suspects, func(queuescript.MendSuspect, int64) { a.out.StaleCounts++ })
}

// findHollow finds suspects: entries of ready that were there before their body was looked for, and are there after
// that.
func (a *audit) findHollow(ctx context.Context) error {
	var suspects []queuescript.MendSuspect
	for page := range slices.Chunk(slices.Collect(maps.Keys(a.hollow)), maxPage) {
		err := a.withoutBody(ctx, page, func(i int) {
			suspects = append(suspects, queuescript.MendSuspect{Kind: queuescript.MendKindHollow, ID: page[i],
				Name: a.hollow[page[i]]})
		})
		if err != nil {
			return err
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	ready, err := a.readyIDs(ctx)
	if err != nil {
		return err
	}
	suspects = slices.DeleteFunc(suspects, func(s queuescript.MendSuspect) bool { return ready[s.ID] != s.Name })
	return a.judge(ctx, suspects, a.ghost)
}

// deadMarks finds suspects among the dead jobs by their marks.
func (a *audit) deadMarks(ctx context.Context, suspects []queuescript.MendSuspect) ([]queuescript.MendSuspect, error) {
	k := &a.queue.keys
	err := a.scanScores(ctx, k.Dead, func(ids, died []string) error {
		counts, err := a.fields(ctx, k.Failures, "", ids)
		for i, count := range counts {
			text, _ := count.(string)
			marked, buried := strings.HasPrefix(text, "b") || text == "x", strings.HasPrefix(text, "b")
			_, ready := a.ready[ids[i]]
			switch {
			case ready && !marked:
				suspects = append(suspects, queuescript.MendSuspect{Kind: queuescript.MendKindMark, ID: ids[i],
					Name: died[i]})
			case !ready && buried:
				suspects = append(suspects, queuescript.MendSuspect{Kind: queuescript.MendKindUnmark, ID: ids[i],
					Name: died[i]})
			}
		}
		return err
	})
	return suspects, err
}

// unmarked finds suspects: entries of jobs that were finished after their entry was made. These are cancelled jobs.
func (a *audit) unmarked(ctx context.Context) (suspects []queuescript.MendSuspect, _ error) {
	k := &a.queue.keys
	err := a.scanSet(ctx, k.Finished, func(page []string) error {
		ids := slices.DeleteFunc(page, func(id string) bool { _, ready := a.ready[id]; return !ready })
		counts, err := a.fields(ctx, k.Failures, "", ids)
		for i, count := range counts {
			if count == nil {
				suspects = append(suspects,
					queuescript.MendSuspect{Kind: queuescript.MendKindCancelled, ID: ids[i], Name: a.ready[ids[i]]})
			}
		}
		return err
	})
	return suspects, err
}

// scores returns the scores of members, and 0 for a member that does not exist.
func (a *audit) scores(ctx context.Context, key string, members []string) ([]float64, error) {
	if len(members) == 0 {
		return nil, nil
	}
	args := []any{"zmscore", key}
	for _, m := range members {
		args = append(args, m)
	}
	return servers.Read(ctx, a.queue.client, redis.NewFloatSliceCmd(ctx, args...)).Result()
}

// fields returns values of a hash, and nil for a field that does not exist. The name of each field begins with prefix.
func (a *audit) fields(ctx context.Context, key, prefix string, names []string) ([]any, error) {
	if len(names) == 0 {
		return nil, nil
	}
	args := []any{"hmget", key}
	for _, name := range names {
		args = append(args, prefix+name)
	}
	return servers.Read(ctx, a.queue.client, redis.NewSliceCmd(ctx, args...)).Result()
}
