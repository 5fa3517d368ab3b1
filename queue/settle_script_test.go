package queue_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
)

// These are the branches that the scripts which end jobs have in common: marks of finished jobs, names, receipts.

// ending is a queue with jobs that a call can end: "leased", the scheduled "later", the dead "dead 1" and "dead 2".
type ending struct {
	t *testing.T
	q *queue.Queue
	c *redis.Client
	d *queue.Delivery // of "leased"
}

func newEnding(t *testing.T) ending {
	t.Helper()
	q, c := lab.NewQueue(t, nil)
	lab.Push(t, q, queue.Job{ID: "dead 1"}, queue.Job{ID: "dead 2"}, queue.Job{ID: "leased"},
		queue.Job{ID: "later", Delay: time.Hour})
	for range 2 {
		require.NoError(t, lab.TakeOne(t, q).Bury(t.Context(), "why"))
	}
	return ending{t, q, c, lab.TakeOne(t, q)}
}

func (e ending) ack() error  { return e.d.Ack(e.t.Context()) }
func (e ending) nack() error { return e.d.Nack(e.t.Context(), 0, "why") }

func (e ending) reclaim() error {
	e.c.ZAdd(e.t.Context(), lab.Key(e.q, "l"), redis.Z{Score: lab.Past, Member: "leased"})
	_, err := e.q.Reclaim(e.t.Context())
	return err
}

func (e ending) trimTo(jobs int) error {
	_, err := e.q.Trim(e.t.Context(), queue.DeadLimits{Jobs: jobs})
	return err
}

func (e ending) trim() error     { return e.trimTo(1) }
func (e ending) trimNone() error { return e.trimTo(2) }

func (e ending) cancel(id string) error {
	_, err := e.q.Cancel(e.t.Context(), id)
	return err
}

func (e ending) cancelLater() error  { return e.cancel("later") }
func (e ending) cancelLeased() error { return e.cancel("leased") }
func (e ending) cancelNone() error   { return e.cancel("none") }

func (e ending) buryNone() error {
	_, err := e.q.BuryJobs(e.t.Context(), "why", "none")
	return err
}

// marked adds the mark of a job that finished long ago.
func (e ending) marked() ending {
	e.c.ZAdd(e.t.Context(), lab.Key(e.q, "f"), redis.Z{Score: lab.Past, Member: "long ago"})
	return e
}

func (e ending) marks() []string { return e.c.ZRange(e.t.Context(), lab.Key(e.q, "f"), 0, -1).Val() }

// jobEnds are the calls that end a job, and the job. The leased one is cancelled before.
var jobEnds = map[string]struct {
	call func(ending) error
	id   string
}{
	"ack": {ending.ack, "leased"}, "nack": {ending.nack, "leased"}, "reclaim": {ending.reclaim, "leased"},
	"cancel": {ending.cancelLater, "later"}, "trim": {ending.trim, "dead 1"},
}

// Whatever ends a job marks it as finished, and removes the marks whose minute is over.
func TestTheEndOfAJobRemovesOldMarks(t *testing.T) {
	t.Parallel()
	for name, end := range jobEnds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnding(t)
			require.NoError(t, e.cancelLeased())
			require.NoError(t, end.call(e.marked()))
			require.Equal(t, []string{end.id}, e.marks())
		})
	}
}

// A mark whose minute is not over stays, where no older one is removed: a repeated push of its job adds nothing.
func TestTheEndOfAJobLeavesYoungMarks(t *testing.T) {
	t.Parallel()
	for name, end := range jobEnds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnding(t)
			require.NoError(t, e.cancelLeased())
			young := redis.Z{Score: float64(lab.Must(e.c.Time(t.Context()).Result()).UnixMilli()), Member: "a"}
			require.NoError(t, e.c.ZAdd(t.Context(), lab.Key(e.q, "f"), young).Err())
			require.NoError(t, end.call(e))
			require.ElementsMatch(t, []string{"a", end.id}, e.marks())
		})
	}
}

// A call that ends no job leaves the marks to those that do.
func TestMarksStayWhereNoJobEnds(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ending) error{
		"nack": ending.nack, "reclaim": ending.reclaim, "cancel of a leased job": ending.cancelLeased,
		"trim": ending.trimNone,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnding(t).marked()
			require.NoError(t, call(e))
			require.Equal(t, []string{"long ago"}, e.marks())
		})
	}
}

// A cancel or bury that finds no job writes its receipt, against a late copy, and nothing else.
func TestACallThatFindsNoJobWritesItsReceiptAlone(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(ending) error{"cancel": ending.cancelNone, "bury": ending.buryNone} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnding(t).marked()
			before := lab.Dump(t.Context(), t, e.c, e.q.Name())
			require.NoError(t, call(e))
			after := lab.Dump(t.Context(), t, e.c, e.q.Name())
			require.Len(t, after, len(before)+1)
			maps.DeleteFunc(after, func(key, _ string) bool {
				_, there := before[key]
				return !there && strings.HasPrefix(key, lab.Key(e.q, "i:"))
			})
			require.Equal(t, before, after)
		})
	}
}

// A job whose unique name a later job has taken over leaves the name to that one, however it ends.
func TestTheEndOfAJobLeavesTheNameOfAnother(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, end := range jobEnds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnding(t)
			require.NoError(t, e.cancelLeased())
			unique, expiry := lab.Key(e.q, "u"), lab.Key(e.q, "ux")
			require.NoError(t, e.c.HSet(ctx, unique, "j:"+end.id, "name", "k:name", "other", "j:other", "name").Err())
			require.NoError(t, e.c.ZAdd(ctx, expiry, redis.Z{Score: lab.Future, Member: "name"}).Err())
			require.NoError(t, end.call(e))
			require.Equal(t, map[string]string{"k:name": "other", "j:other": "name"}, e.c.HGetAll(ctx, unique).Val())
			require.Equal(t, []string{"name"}, e.c.ZRange(ctx, expiry, 0, -1).Val())
		})
	}
}
