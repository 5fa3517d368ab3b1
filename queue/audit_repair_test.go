package queue_test

import (
	"cmp"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// The script judges each suspect again, with all keys, in the step that repairs it.
func TestRepairJudgesEachSuspectAgain(t *testing.T) {
	t.Parallel()
	const (
		lost, ghost = queuescript.MendKindLost, queuescript.MendKindGhost
		count, name = queuescript.MendKindCount, queuescript.MendKindName
	)
	cases := map[string]struct {
		kind     queuescript.MendKind
		id, name string
		verdict  int64
		notifies bool
	}{
		"lost":                     {lost, "lost", "", 1, true},
		"lost and cancelled":       {lost, "cancelled", "", 2, true},
		"lost, but ready":          {lost, "r", "", 0, false},
		"lost, but scheduled":      {lost, "s", "", 0, false},
		"lost, but leased":         {lost, "l", "", 0, false},
		"lost, but dead":           {lost, "d", "", 0, false},
		"lost, with the body":      {lost, "nowhere", "", 0, false},
		"ghost, scheduled":         {ghost, "ghost s", "", 1, false},
		"ghost, leased":            {ghost, "ghost l", "", 1, false},
		"ghost, dead":              {ghost, "ghost d", "", 1, false},
		"ghost, but with a body":   {ghost, "s", "", 0, false},
		"ghost, but nowhere":       {ghost, "nowhere", "", 0, false},
		"count":                    {count, "count", "", 1, false},
		"count, only the reason":   {count, "reason", "", 1, false},
		"count, but with a body":   {count, "r", "", 0, false},
		"count, but a ghost's":     {count, "ghost l", "", 0, false},
		"count, but none":          {count, "nowhere", "", 0, false},
		"name":                     {name, "deleted", "whole", 1, false},
		"name, but another has it": {name, "deleted", "new holder", 1, false},
		"name, but it has another": {name, "deleted 2", "half", 1, false},
		"name, but of a job":       {name, "r", "held", 0, false},
		"name, but neither exists": {name, "nowhere", "held", 0, false},
		"name, not of its job":     {name, "s", "jobless", 1, false},
		"name, without a holder":   {name, "l", "holderless", 1, false},
		"name, given up at death":  {name, "d", "given up", 0, false},
		"name, of one that lapsed": {name, "lost", "lapsed", 0, false},
	}
	for what, tc := range cases {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			q, c := lab.NewQueue(t, nil)
			damaged(t, c, q)
			p := repairParams(q)
			suspect := queuescript.MendSuspect{Kind: tc.kind, ID: tc.id, Name: tc.name}
			p.From, p.To, p.Suspects = "7", 7, []queuescript.MendSuspect{suspect, suspect}
			notified := listener(t, c, q, "x")
			before := lab.Dump(ctx, t, c, q.Name())
			repairs := func(verdict int64) (second int64) {
				r, err := queuescript.Mend(ctx, c, p)
				require.NoError(t, err)
				require.Equal(t, verdict, r.Verdicts[0])
				require.False(t, r.Corrected, "dead_bytes is right")
				return r.Verdicts[1]
			}
			repairs(tc.verdict)
			require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()), "an audit without repair changes nothing")

			p.Mend = true
			second := repairs(tc.verdict)
			ready := c.LLen(ctx, lab.Key(q, "r")).Val()
			if tc.notifies {
				notified()
				require.Zero(t, second, "the second suspect is the same")
				require.EqualValues(t, 2, ready)
			} else {
				require.Len(t, waiting(t, c, q), 1, "nobody is notified")
				require.EqualValues(t, 1, ready)
			}
			if tc.verdict == 0 {
				require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()), "nothing changed")
			}
			holds := c.HGetAll(ctx, lab.Key(q, "u")).Val()
			require.Equal(t, "r", holds["k:held"])
			require.Equal(t, "r", holds["k:new holder"], "the new holder's")
			require.Equal(t, "another", holds["j:deleted 2"], "the other name's")
			require.NotZero(t, c.ZScore(ctx, lab.Key(q, "ux"), "new holder").Val())
			require.Zero(t, repairs(0), "all is repaired")
		})
	}
}

// The bytes of the dead set are corrected where they are still those that the audit read.
func TestRepairOfTheBytesOfTheDeadSet(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	p := repairParams(q)
	p.Mend = true
	for _, of := range []struct {
		there, from string
		to          int64
		want        string
	}{
		{"7", "7", 5, "5"}, {"7", "6", 5, ""}, {"7", "7", 7, ""}, {"7", "7", -1, ""}, {"7", "7", 0, "-"},
		{"-", "-", 5, "5"}, {"x", "x", 0, "-"}, {"x", "y", 0, ""},
	} {
		require.NoError(t, c.HSet(ctx, lab.Key(q, "c"), "dead_bytes", of.there).Err())
		if of.there == "-" {
			require.NoError(t, c.HDel(ctx, lab.Key(q, "c"), "dead_bytes").Err())
		}
		p.From, p.To = of.from, of.to
		require.Equal(t, of.want != "", lab.Must(queuescript.Mend(ctx, c, p)).Corrected, "%+v", of)
		is := cmp.Or(c.HGet(ctx, lab.Key(q, "c"), "dead_bytes").Val(), "-")
		require.Equal(t, cmp.Or(of.want, of.there), is, "%+v", of)
	}
}

// A repair refuses a later layout and changes nothing.
func TestRepairOfALaterLayoutIsRefused(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	damaged(t, c, q)
	require.NoError(t, c.HSet(ctx, lab.Key(q, "c"), "paused", "layout 2").Err())
	before := lab.Dump(ctx, t, c, q.Name())
	p := repairParams(q)
	p.Mend, p.Suspects = true, []queuescript.MendSuspect{{Kind: queuescript.MendKindLost, ID: "lost"}}
	_, err := queuescript.Mend(ctx, c, p)
	var refused *lua.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "LAYOUT", refused.Code)
	require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()))
}

// repairParams are the keys of a repair.
func repairParams(q *queue.Queue) queuescript.MendParams {
	return queuescript.MendParams{
		Ready: lab.Key(q, "r"), Scheduled: lab.Key(q, "s"), Bodies: lab.Key(q, "b"), Leases: lab.Key(q, "l"),
		Failures: lab.Key(q, "n"), Dead: lab.Key(q, "d"), Unique: lab.Key(q, "u"), Expiry: lab.Key(q, "ux"),
		Control: lab.Key(q, "c"), Wake: lab.Key(q, "w"), Options: lab.Key(q, "o"),
		Finished: lab.Key(q, "f"),
	}
}

// damaged writes a job in each state, and one of each kind of damage.
func damaged(t *testing.T, c *redis.Client, q *queue.Queue) {
	t.Helper()
	ctx := t.Context()
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, id := range []string{"r", "s", "l", "d", "lost"} {
			p.HSet(ctx, lab.Key(q, "b"), id, "body")
		}
		p.HSet(ctx, lab.Key(q, "b"), "cancelled", "")
		p.RPush(ctx, lab.Key(q, "r"), "1:r")
		p.ZAdd(ctx, lab.Key(q, "s"), redis.Z{Score: lab.Future, Member: "s"},
			redis.Z{Score: lab.Future, Member: "ghost s"})
		p.ZAdd(ctx, lab.Key(q, "l"), redis.Z{Score: lab.LongLease, Member: "l"},
			redis.Z{Score: lab.LongLease, Member: "ghost l"})
		p.ZAdd(ctx, lab.Key(q, "d"), redis.Z{Score: lab.Past, Member: "d"}, redis.Z{Score: lab.Past, Member: "ghost d"})
		p.HSet(ctx, lab.Key(q, "n"), "cancelled", "x", "r", "1", "ghost l", "1", "count", "1", "count\n", "why",
			"reason\n", "why")
		p.HSet(ctx, lab.Key(q, "u"), "k:held", "r", "j:r", "held", "k:whole", "deleted", "j:deleted", "new holder",
			"k:new holder", "r", "k:half", "deleted 2", "j:deleted 2", "another", "k:jobless", "s",
			"j:l", "holderless", "j:d", "given up", "j:lost", "lapsed")
		for _, name := range []string{"held", "whole", "new holder", "half", "jobless", "holderless", "given up"} {
			p.ZAdd(ctx, lab.Key(q, "ux"), redis.Z{Score: lab.Future, Member: name})
		}
		p.HSet(ctx, lab.Key(q, "c"), "dead_bytes", 7)
		return nil
	})
	require.NoError(t, err)
}

// A job was cancelled while a worker had it, and its lease is lost: the repair ends what the lease would have ended. A
// take drops the entry, and knows neither the unique name of a job nor its details.
func TestRepairOfACancelledJobWithoutItsLease(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "running", Body: []byte("body"), Unique: "name", Kind: "mail"})
	require.NoError(t, lab.TakeOne(t, q).Nack(ctx, 0, "why"))
	lab.TakeOne(t, q)
	lab.Must(q.Cancel(ctx, "running"))
	require.NoError(t, c.Del(ctx, lab.Key(q, "l")).Err())

	before := lab.Dump(ctx, t, c, q.Name())
	require.Equal(t, queue.Audited{Checked: 1, StaleCounts: 1}, audit(t, q, false))
	require.Equal(t, before, lab.Dump(ctx, t, c, q.Name()), "an audit without repair changes nothing")
	require.Equal(t, queue.Audited{Checked: 1, StaleCounts: 1, Repaired: 1}, audit(t, q, true))
	require.Equal(t, queue.Audited{Checked: 1}, audit(t, q, true), "all is repaired")
	require.Zero(t, c.Exists(ctx, lab.Key(q, "u"), lab.Key(q, "ux"), lab.Key(q, "o")).Val())

	require.Empty(t, lab.Push(t, q, queue.Job{ID: "next", Unique: "name"}).Duplicates, "the name is free")
	require.Equal(t, []string{"next"}, empty(t, q))
	require.Zero(t, c.Exists(ctx, lab.Key(q, "b"), lab.Key(q, "n"), lab.Key(q, "u"), lab.Key(q, "ux"),
		lab.Key(q, "o"), lab.Key(q, "r")).Val())
}
