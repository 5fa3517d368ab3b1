package queue_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// Extends of one delivery at the same moment follow each other: none takes the fence of another for a lost lease.
func TestExtendsAtTheSameMomentLoseNoLease(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "x"})
	d := lab.TakeOne(t, q)
	for range 100 {
		var calls sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			calls.Go(func() { errs[i] = d.Extend(t.Context(), time.Hour) })
		}
		calls.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
	require.Equal(t, d.Deadline().UnixMicro(), int64(c.ZScore(t.Context(), lab.Key(q, "l"), "x").Val()))
	require.NoError(t, d.Ack(t.Context()))
}

// An extend that was refused says nothing of its repeat by another call, which is on its way: the ack learns the fence
// that the repeat has set.
func TestRefusedExtendIsNoReplyToItsRepeat(t *testing.T) {
	t.Parallel()
	q, c := lab.NewQueue(t, nil)
	require.NoError(t, lua.Preload(t.Context(), c, &queuescript.ExtendScript))
	lab.Push(t, q, queue.Job{ID: "x"})
	d := lab.TakeOne(t, q)
	var tries atomic.Int32
	began, repeated, released := make(chan bool), make(chan bool), make(chan bool)
	release := sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.ExtendScript), Do: func(run func() error) error {
		switch tries.Add(1) {
		case 1:
			close(began)
			<-repeated
			return refusal("NOPERM not now")
		case 2:
			err := run()
			close(repeated)
			<-released
			return err
		}
		return run()
	}})
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- d.Extend(t.Context(), time.Hour) }()
	lab.Soon(t, 20*time.Second, "the first extend", began)
	go func() { second <- d.Extend(t.Context(), time.Hour) }()
	require.ErrorContains(t, lab.Soon(t, 20*time.Second, "the refusal", first), "NOPERM not now")
	require.NoError(t, d.Ack(t.Context()))
	release()
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the second extend", second), queue.ErrLeaseLost)
}
