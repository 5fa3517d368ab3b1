package queue_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Every key has more than one page. The result names a hundred ids.
func TestAuditInPages(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, c := lab.NewQueue(t, nil)
	for range 3 {
		lab.Push(t, q, lab.Bodies(1000)...)
	}
	require.NoError(t, c.LTrim(ctx, lab.Key(q, "r"), 0, 1499).Err())
	for i := range 1200 {
		require.NoError(t, c.ZAdd(ctx, lab.Key(q, "d"), redis.Z{Score: lab.Future,
			Member: fmt.Sprint("ghost", i)}).Err())
	}
	require.NoError(t, c.ZAdd(ctx, lab.Key(q, "s"), redis.Z{Score: lab.Future, Member: "ghost0"}).Err())
	out := audit(t, q, true)
	require.Equal(t, 1500, out.LostTotal)
	require.Equal(t, 1200, out.GhostTotal, "one with two states is one")
	require.Len(t, out.Lost, 100)
	require.Len(t, out.Ghosts, 100)
	require.Equal(t, 2700, out.Repaired)
	require.Len(t, empty(t, q), 3000)
}

func TestAuditOfLargeBodies(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	for range 40 {
		lab.Push(t, q, queue.Job{Body: make([]byte, 300_000)}, queue.Job{})
	}
	taken, err := q.Take(t.Context(), 10)
	require.NoError(t, err)
	require.NoError(t, q.Bury(t.Context(), "why", taken.Deliveries...))
	require.NoError(t, c.Del(t.Context(), lab.Key(q, "r"), lab.Key(q, "c")).Err())
	size := 0
	for _, d := range taken.Deliveries {
		size += len(d.Body)
	}
	out := audit(t, q, true)
	require.Equal(t, 80, out.Checked)
	require.Equal(t, 80-len(taken.Deliveries), out.LostTotal)
	require.Equal(t, size, out.DeadBytes)
	require.Equal(t, size, stats(t, q).DeadBytes)
}

// A job is never in the state that the audit reads: leased while it reads ready, ready while it reads the leases,
// both times.
func TestAuditIsNotFooledByAJobThatMoves(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "moves"})
	d := lab.TakeOne(t, q)
	back := func() { require.NoError(t, d.Return(ctx, 0)) }
	moves := 0
	hook := &lab.Step{At: map[string]func(){
		"hscan1":   func() { moves++; back() },
		"lrange2":  func() { moves++; d = lab.TakeOne(t, q) },
		"evalsha1": func() { moves++; back() },
	}}
	watched := luatomictest.Client(t)
	watched.AddHook(hook)
	same, err := queue.New(watched, q.Name(), nil)
	require.NoError(t, err)
	require.Equal(t, queue.Audited{Checked: 1}, audit(t, same, true))
	require.Equal(t, 3, moves, "the job moved at each step")
	require.Equal(t, []string{"moves"}, empty(t, q))
}
