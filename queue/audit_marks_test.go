package queue_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

// Whatever key is deleted, an audit repairs the rest: every job is in one state, is delivered once and whole, and keeps
// its unique name until then. No key stays but those that expire.
func TestAuditAfterTheLossOfEachKey(t *testing.T) {
	t.Parallel()
	for _, suffix := range strings.Fields("r s b l n d u ux c w o f") {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			q, c := lab.NewQueue(t, nil)
			everywhere(t, q)
			lab.Push(t, q, queue.Job{ID: "buried", Body: []byte("body"), Unique: "of buried"})
			buried, err := q.BuryJobs(ctx, "why", "buried")
			require.NoError(t, err)
			require.Equal(t, []queue.State{queue.Ready}, buried)
			lab.Push(t, q, queue.Job{ID: "old", Body: []byte("old"), Unique: "of old"})
			_, err = q.Cancel(ctx, "old")
			require.NoError(t, err)
			for _, id := range []string{"old", "cancelled"} { // each a millisecond after its push at least
				require.NoError(t, c.ZIncrBy(ctx, lab.Key(q, "f"), 1, id).Err())
			}
			require.NoError(t, c.Del(ctx, lab.Key(q, suffix)).Err())

			audit(t, q, true)
			again := audit(t, q, false)
			require.True(t, again.OK(), "%+v", again)
			oneState(t, c, q)
			if suffix != "b" && suffix != "u" {
				require.Len(t, lab.Push(t, q, queue.Job{Unique: "of ready"}).Duplicates, 1)
			}
			if suffix == "n" {
				dead, err := q.Peek(ctx, queue.Dead, 0, 10)
				require.NoError(t, err)
				require.Len(t, dead, 2, "no job comes back to life")
			}
			delivered := empty(t, q)
			jobs := []string{"buried", "dead", "failed", "leased", "ready", "scheduled"}
			if suffix == "b" {
				jobs = nil
			}
			require.ElementsMatch(t, jobs, delivered)
			for key := range lab.Dump(ctx, t, c, q.Name()) {
				require.Positive(t, c.PTTL(ctx, key).Val(), key)
			}
		})
	}
}

// oneState requires every job with a body in one state; an entry with a mark is none.
func oneState(t *testing.T, c *redis.Client, q *queue.Queue) {
	t.Helper()
	ctx := t.Context()
	states := map[string]int{}
	marks := c.HGetAll(ctx, lab.Key(q, "n")).Val()
	for _, entry := range c.LRange(ctx, lab.Key(q, "r"), 0, -1).Val() {
		_, id, _ := strings.Cut(entry, ":")
		dead := c.ZScore(ctx, lab.Key(q, "d"), id).Err() == nil
		if mark := marks[id]; mark != "x" && !(strings.HasPrefix(mark, "b") && dead) {
			states[id]++
		}
	}
	for _, key := range []string{"s", "l", "d"} {
		for _, id := range c.ZRange(ctx, lab.Key(q, key), 0, -1).Val() {
			states[id]++
		}
	}
	for id, body := range c.HGetAll(ctx, lab.Key(q, "b")).Val() {
		if marks[id] == "x" {
			continue
		}
		require.Equal(t, 1, states[id], id)
		require.NotEmpty(t, body, id)
	}
}

// The script looks again at each mark and each end.
func TestRepairJudgesMarksAndEndsAgain(t *testing.T) {
	t.Parallel()
	const (
		end, unmark = queuescript.MendKindEnd, queuescript.MendKindUnmark
		mark, lost  = queuescript.MendKindMark, queuescript.MendKindCancelled
		hollow      = queuescript.MendKindHollow
	)
	cases := map[string]struct {
		kind          queuescript.MendKind
		id, name      string
		verdict       int64
		field, become string // of n; none for ""
	}{
		"hold without an end":              {end, "", "endless", 1, "", ""},
		"hold without an end or a job":     {end, "", "of none", 0, "", ""},
		"end without a hold":               {end, "", "holdless", 1, "", ""},
		"hold with an end":                 {end, "", "whole", 0, "", ""},
		"neither":                          {end, "", "neither", 0, "", ""},
		"mark to drop":                     {unmark, "buried", "7", 1, "buried", ""},
		"mark to drop, a count stays":      {unmark, "buried 3", "7", 1, "buried 3", "3"},
		"mark to drop, died again":         {unmark, "buried", "6", 0, "buried", "b0"},
		"mark to drop, dropped":            {unmark, "dead 3", "7", 0, "dead 3", "3"},
		"mark to drop, not dead":           {unmark, "restored", "7", 0, "restored", "b0"},
		"mark to set":                      {mark, "dead", "7", 1, "dead", "b0"},
		"mark to set, a count stays":       {mark, "dead 3", "7", 1, "dead 3", "b3"},
		"mark to set, died again":          {mark, "dead", "6", 0, "dead", ""},
		"mark to set, set":                 {mark, "buried 3", "7", 0, "buried 3", "b3"},
		"mark to set, leased":              {mark, "dead and leased", "7", 0, "dead and leased", ""},
		"mark to set, no body":             {mark, "bodiless", "7", 0, "bodiless", ""},
		"cancelled":                        {lost, "cancelled", "6", 1, "cancelled", "x"},
		"cancelled, of that moment":        {lost, "cancelled", "7", 0, "cancelled", ""},
		"cancelled, no stamp":              {lost, "cancelled", "", 0, "cancelled", ""},
		"cancelled, but with a body":       {lost, "whole", "6", 0, "whole", ""},
		"cancelled, but with a count":      {lost, "failed", "6", 0, "failed", "1"},
		"cancelled, but scheduled":         {lost, "scheduled", "6", 0, "scheduled", ""},
		"cancelled, but finished long ago": {lost, "young", "6", 0, "young", ""},
		"ready without a body":             {hollow, "gone", "6", 1, "gone", "x"},
		"ready, and pushed since":          {hollow, "whole", "6", 0, "whole", ""},
		"ready, and died since":            {hollow, "bodiless", "6", 0, "bodiless", ""},
	}
	for what, tc := range cases {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			q, c := lab.NewQueue(t, nil)
			wrongMarks(t, c, q)
			p := repairParams(q)
			p.To, p.Suspects = -1, []queuescript.MendSuspect{{Kind: tc.kind, ID: tc.id, Name: tc.name}}
			before := lab.Dump(ctx, t, c, q.Name())
			require.Equal(t, []int64{tc.verdict}, lab.Must(queuescript.Mend(ctx, c, p)).Verdicts)
			require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()), "an audit without repair changes nothing")
			p.Mend = true
			require.Equal(t, []int64{tc.verdict}, lab.Must(queuescript.Mend(ctx, c, p)).Verdicts)
			if tc.verdict == 0 {
				require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()))
			}
			if tc.field != "" {
				require.Equal(t, tc.become, c.HGet(ctx, lab.Key(q, "n"), tc.field).Val())
			}
			require.Equal(t, []int64{0}, lab.Must(queuescript.Mend(ctx, c, p)).Verdicts, "all is repaired")
		})
	}
}

// wrongMarks writes jobs that died at 7, were finished at 7 and hold names, with and without what belongs to that.
func wrongMarks(t *testing.T, c *redis.Client, q *queue.Queue) {
	t.Helper()
	ctx := t.Context()
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range []string{"buried", "buried 3", "dead", "dead 3", "dead and leased", "restored", "whole"} {
			p.HSet(ctx, lab.Key(q, "b"), id, "body")
		}
		for _, id := range []string{"buried", "buried 3", "dead", "dead 3", "dead and leased", "bodiless"} {
			p.ZAdd(ctx, lab.Key(q, "d"), redis.Z{Score: 7, Member: id})
		}
		for _, id := range []string{"cancelled", "failed", "scheduled", "young"} {
			p.HSet(ctx, lab.Key(q, "b"), id, "")
		}
		for _, id := range []string{"cancelled", "failed", "scheduled", "whole"} {
			p.ZAdd(ctx, lab.Key(q, "f"), redis.Z{Score: 7, Member: id})
		}
		p.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.LongLease, Member: "dead and leased"})
		p.ZAdd(ctx, lab.Key(q, "s"), redis.Z{Score: lab.Future, Member: "scheduled"})
		p.HSet(ctx, lab.Key(q, "n"), "buried", "b0", "buried 3", "b3", "dead 3", "3", "restored", "b0", "failed", "1")
		p.HSet(ctx, lab.Key(q, "u"), "k:endless", "whole", "k:whole", "whole", "k:of none", "none")
		p.ZAdd(ctx, lab.Key(q, "ux"), redis.Z{Score: 1, Member: "whole"}, redis.Z{Score: 1, Member: "holdless"})
		return nil
	})
	require.NoError(t, err)
}
