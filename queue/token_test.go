package queue_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// No push shows the token that it refuses: a token can be a secret.
func TestRefusedTokensAreNotShown(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	shards, err := queue.NewShards(c, luatomictest.Namespace(t), 2, nil)
	require.NoError(t, err)
	const token = "secret{"
	_, one := q.PushOnce(t.Context(), token, queue.Job{})
	_, all := queue.PushAllOnce(t.Context(), token, queue.Batch{Queue: q, Jobs: lab.Bodies(1)})
	_, spread := shards.PushOnce(t.Context(), token, queue.Job{})
	for _, err := range []error{one, all, spread} {
		require.ErrorIs(t, err, lua.ErrBadName)
		require.NotContains(t, err.Error(), "secret")
	}
}

// A token that comes with other jobs is refused, and changes nothing: the answer of its first push would say that they
// are in. What a repeat works out anew may differ. The guard is the digest in the receipt.
func TestATokenUsedForOtherJobsIsRefused(t *testing.T) {
	t.Parallel()
	ctx, c, tag := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	q := lab.Tagged(t, c, tag, 3)
	jobs := []queue.Job{{ID: "a", Body: []byte("A")}, {Unique: "u", Kind: "k", Body: []byte("B")}}
	first, err := q[0].PushOnce(ctx, "token", jobs...)
	require.NoError(t, err)
	all, err := queue.PushAllOnce(ctx, "token", queue.Batch{Queue: q[1], Jobs: jobs})
	require.NoError(t, err)
	before := lab.Dump(ctx, t, c, tag)
	change := func(i int, f func(*queue.Job)) []queue.Job {
		out := slices.Clone(jobs)
		f(&out[i])
		return out
	}
	for name, other := range map[string][]queue.Job{
		"id":     change(0, func(j *queue.Job) { j.ID = "b" }),
		"no id":  change(0, func(j *queue.Job) { j.ID = "" }),
		"body":   change(1, func(j *queue.Job) { j.Body = []byte("C") }),
		"unique": change(1, func(j *queue.Job) { j.Unique = "v" }),
		"kind":   change(1, func(j *queue.Job) { j.Kind = "" }),
		"order":  {{Unique: "u", Kind: "k", Body: []byte("B")}, {ID: "a", Body: []byte("A")}},
		"fewer":  jobs[:1],
		"more":   append(slices.Clone(jobs), queue.Job{ID: "c"}),
	} {
		_, err := q[0].PushOnce(ctx, "token", other...)
		require.ErrorIs(t, err, queue.ErrTokenReused, name)
		require.ErrorIs(t, err, lua.ErrRefused, name)
		require.ErrorContains(t, err, "use another token", name)
		_, err = queue.PushAllOnce(ctx, "token", queue.Batch{Queue: q[1], Jobs: other})
		require.ErrorIs(t, err, queue.ErrTokenReused, name)
	}
	for name, other := range map[string][]queue.Batch{
		"another queue": {{Queue: q[2], Jobs: jobs}},
		"one more":      {{Queue: q[1], Jobs: jobs}, {Queue: q[2]}},
		"between them":  {{Queue: q[1], Jobs: jobs[:1]}, {Queue: q[2], Jobs: jobs[1:]}},
	} {
		_, err := queue.PushAllOnce(ctx, "token", other...)
		require.ErrorIs(t, err, queue.ErrTokenReused, name)
	}
	require.Equal(t, before, lab.Dump(ctx, t, c, tag))

	later := change(0, func(j *queue.Job) { j.Delay, j.Headers, j.Timeout = time.Hour, map[string]string{"h": "1"}, 1 })
	again, err := q[0].PushOnce(ctx, "token", later...)
	require.NoError(t, err)
	require.Equal(t, first, again)
	allAgain, err := queue.PushAllOnce(ctx, "token", queue.Batch{Queue: q[1], Jobs: later})
	require.NoError(t, err)
	require.Equal(t, all, allAgain)
	require.Equal(t, before, lab.Dump(ctx, t, c, tag))
}

// Each shard that has its part of a push refuses its token for other jobs. The others would add them.
func TestATokenUsedForOtherJobsOfShardsIsRefused(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.Client(t)
	s, err := queue.NewShards(c, luatomictest.Namespace(t), 2, nil)
	require.NoError(t, err)
	jobs := lab.Bodies(30)
	first, err := s.Push(ctx, jobs...)
	require.NoError(t, err)
	require.Len(t, first.Parts, 2)
	again, err := s.PushOnce(ctx, first.Token, jobs...)
	require.NoError(t, err)
	require.Equal(t, first.Ready, again.Ready)
	jobs[29].Body = []byte("another")
	refused, err := s.PushOnce(ctx, first.Token, jobs...)
	require.ErrorIs(t, err, queue.ErrTokenReused)
	for _, p := range refused.Parts {
		require.ErrorIs(t, p.Err, queue.ErrTokenReused, "also the shard whose own part is the same")
	}
	stats, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 30, stats.Ready)
}
