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
			if holder == nil {
				suspect(names[i])
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	return a.judge(ctx, suspects, func(string, int64) { a.out.StaleNames++ })
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
	return a.judge(ctx, suspects, func(string, int64) { a.out.StaleCounts++ })
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
