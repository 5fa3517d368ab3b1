package luatomic_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// queueCase is a call after some others. Leases of a millisecond in the preparation have expired: the sweep stops the
// clock a second later.
func queueCase(name string, opts queue.Options, run scriptcase.QueueStep,
	before ...scriptcase.QueueStep) failpointCase {
	var ds []*queue.Delivery
	call := func(ctx context.Context, c lua.Client, k string, steps ...scriptcase.QueueStep) error {
		q, err := queue.New(c, k, &opts)
		for i := 0; i < len(steps) && err == nil; i++ {
			err = steps[i](ctx, q, &ds)
		}
		return err
	}
	return failpointCase{name: name, prepare: func(ctx context.Context, _ *testing.T, c *redis.Client, k string) error {
		return call(ctx, c, k, before...)
	}, run: func(ctx context.Context, c lua.Client, k string) (string, error) {
		return "", call(ctx, c, k, run)
	}}
}

// manyCase is a push to queues of one tag, each of which has jobs. The first is the queue without a tag.
func manyCase(name string, batch []queue.Batch, before []queue.Job) failpointCase {
	queues := func(c lua.Client, k string) ([]queue.Batch, error) {
		out := slices.Clone(batch)
		var err error
		for i := 0; i < len(out) && err == nil; i++ {
			var opts queue.Options
			name := k
			if i > 0 {
				name, opts.Tag = fmt.Sprint("part", i), k
			}
			out[i].Queue, err = queue.New(c, name, &opts)
		}
		return out, err
	}
	return failpointCase{name, func(ctx context.Context, _ *testing.T, c *redis.Client, k string) error {
		parts, err := queues(c, k)
		for i := 0; i < len(parts) && err == nil; i++ {
			_, err = parts[i].Queue.PushOnce(ctx, "before", before...)
		}
		return err
	}, func(ctx context.Context, c lua.Client, k string) (string, error) {
		parts, err := queues(c, k)
		if err == nil {
			_, err = queue.PushAllOnce(ctx, "first", parts...)
		}
		return "", err
	}, nil}
}

// bareCase is a push of jobs alone, the bodies of which are stored in several commands.
func bareCase(name string, n int) failpointCase {
	return failpointCase{name: name, prepare: func(ctx context.Context, _ *testing.T, c *redis.Client, k string) error {
		c.HSet(ctx, "{"+k+"}:b", "there", "body")
		return c.RPush(ctx, "{"+k+"}:r", "1:there").Err()
	}, run: func(ctx context.Context, c lua.Client, k string) (string, error) {
		p := queuescript.PushBareParams{Ready: "{" + k + "}:r", Bodies: "{" + k + "}:b", Control: "{" + k + "}:c",
			Wake:     "{" + k + "}:w",
			Finished: "{" + k + "}:f"}
		for i := range n {
			p.Jobs = append(p.Jobs, queuescript.PushBareJob{ID: fmt.Sprint("new", i), Body: []byte("B")})
		}
		_, err := queuescript.PushBare(ctx, c, p)
		return "", err
	}}
}

// takes takes n jobs, in as many calls as necessary, or all of them.
func takes(n int) scriptcase.QueueStep {
	return func(ctx context.Context, q *queue.Queue, ds *[]*queue.Delivery) error {
		for *ds = nil; len(*ds) < n; {
			taken, err := q.Take(ctx, n-len(*ds))
			if err != nil || len(taken.Deliveries) == 0 {
				return err
			}
			*ds = append(*ds, taken.Deliveries...)
		}
		return nil
	}
}

func nacks(delay time.Duration) scriptcase.QueueStep {
	return func(ctx context.Context, q *queue.Queue, ds *[]*queue.Delivery) error {
		return q.Nack(ctx, delay, "reason", *ds...)
	}
}

func returns(ctx context.Context, q *queue.Queue, ds *[]*queue.Delivery) error {
	return q.Return(ctx, 0, *ds...)
}

func buries(ctx context.Context, q *queue.Queue, ds *[]*queue.Delivery) error {
	return q.Bury(ctx, "reason", *ds...)
}

func acks(ctx context.Context, q *queue.Queue, ds *[]*queue.Delivery) error {
	return q.Ack(ctx, *ds...)
}

func extends(ctx context.Context, q *queue.Queue, ds *[]*queue.Delivery) error {
	return q.Extend(ctx, 2*time.Hour, *ds...)
}

func trims(limits queue.DeadLimits) scriptcase.QueueStep {
	return func(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
		_, err := q.Trim(ctx, limits)
		return err
	}
}

// failpointCases are larger calls than those of ScriptCalls: lists written in chunks, several jobs, unique names, and
// every branch that writes.
func failpointCases() []failpointCase {
	hour, soon := queue.Options{Lease: time.Hour}, queue.Options{Lease: time.Millisecond, MaxFailures: 2}
	named := []queue.Job{{ID: "a", Body: []byte("A"), Unique: "x"},
		{ID: "b", Body: []byte("B"), Unique: "y", UniqueTTL: time.Minute}, {ID: "c", Body: []byte("C")}}
	held := queue.Job{ID: "held", Unique: "name", Delay: time.Hour}
	over := queue.Job{ID: "over", Unique: "free", UniqueTTL: time.Millisecond}
	due := lab.Numbered(20, time.Millisecond)
	mixed := lab.Numbered(1000, 0)
	for i := range mixed {
		if i%3 == 0 {
			mixed[i].Delay = time.Minute
		}
		if i%2 == 0 {
			mixed[i].Unique, mixed[i].UniqueTTL = fmt.Sprint("name ", i), time.Duration(i)*time.Second
		}
	}
	mixed[11].ID, mixed[20].Unique = "a", "name"
	return slices.Concat([]failpointCase{
		queueCase("queue_push/one known", hour, scriptcase.Pushes(queue.Job{ID: "j0"}),
			func(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
				_, err := q.Push(ctx, lab.Numbered(1, 0)...)
				return err
			}),
		queueCase("queue_push/chunks", hour, scriptcase.Pushes(mixed...),
			func(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
				_, err := q.Push(ctx, append(named, held)...)
				return err
			}),
		bareCase("queue_push_bare/chunks", 120),
		queueCase("queue_push/after a holder", hour,
			func(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
				_, err := q.Push(ctx, queue.Job{ID: "new", Unique: "free"})
				return err
			}, scriptcase.Pushes(over)),
		manyCase("queue_push_many/chunks", []queue.Batch{{Jobs: mixed[:600]}, {Jobs: mixed[600:]}},
			append(named, held)),
		manyCase("queue_push_many/after a holder", []queue.Batch{{Jobs: []queue.Job{{ID: "new", Unique: "free"}}},
			{Jobs: []queue.Job{{ID: "new", Unique: "free"}, {ID: "over", Delay: time.Hour}}}}, []queue.Job{over}),
		queueCase("queue_take/chunks", hour, takes(1000), scriptcase.Pushes(lab.Numbered(1000, 0)...)),
		queueCase("queue_take/due", hour, takes(30), scriptcase.Pushes(append(due, named...)...)),
		queueCase("queue_take/some due", hour, takes(10), scriptcase.Pushes(append(due, named...)...)),
		thenPush(queueCase("queue_take/cancelled", hour, takes(2), scriptcase.Pushes(lab.Numbered(6, 0)...),
			scriptcase.Cancels("j0", "j1", "j3"))),
		queueCase("queue_take/failed", hour, takes(2), scriptcase.Pushes(lab.Numbered(3, 0)...), takes(3), nacks(0)),
		twoQueuesCase(),
		queueCase("queue_ack/chunks", hour, acks, scriptcase.Pushes(lab.Numbered(600, 0)...), takes(600), nacks(0),
			takes(600)),
		queueCase("queue_ack/names", hour, acks, scriptcase.Pushes(named...), takes(3)),
		queueCase("queue_extend/many", hour, extends, scriptcase.Pushes(lab.Numbered(500, 0)...), takes(500)),
		queueCase("queue_nack/now", hour, nacks(0), scriptcase.Pushes(named...), takes(3)),
		queueCase("queue_nack/later", hour, nacks(time.Hour), scriptcase.Pushes(named...), takes(3)),
		queueCase("queue_nack/returned", hour, returns, scriptcase.Pushes(named...), takes(3)),
		queueCase("queue_nack/buried", hour, buries, scriptcase.Pushes(named...), takes(3)),
		queueCase("queue_reclaim/returned", soon, scriptcase.Reclaims, scriptcase.Pushes(named...), takes(3)),
		queueCase("queue_reclaim/buried", soon, scriptcase.Reclaims, scriptcase.Pushes(named...), takes(3),
			nacks(0), takes(2)),
		thenTake(queueCase("queue_cancel/ready", hour, scriptcase.Cancels("j0", "j1"),
			scriptcase.Pushes(lab.Numbered(3, 0)...))),
		queueCase("queue_cancel/places", hour, scriptcase.Cancels("a", "b", "c", "held", "absent"),
			scriptcase.Pushes(append(named, held)...), takes(2),
			func(ctx context.Context, q *queue.Queue, ds *[]*queue.Delivery) error {
				return q.Bury(ctx, "reason", (*ds)[0])
			}),
		queueCase("queue_bury/places", hour, scriptcase.BuriesJobs("a", "b", "c", "held", "absent"),
			scriptcase.Pushes(append(named, held)...), takes(1)),
		queueCase("queue_take/buried", hour, takes(2), scriptcase.Pushes(lab.Numbered(6, 0)...),
			scriptcase.BuriesJobs("j0", "j1", "j3")),
		queueCase("queue_requeue/buried ready", hour, scriptcase.Requeues("a", "c", "absent"),
			scriptcase.Pushes(named...), scriptcase.BuriesJobs("a", "b", "c")),
		queueCase("queue_cancel/buried ready", hour, scriptcase.Cancels("a", "c", "absent"),
			scriptcase.Pushes(named...), scriptcase.BuriesJobs("a", "b", "c")),
		queueCase("queue_trim/buried ready", hour, trims(queue.DeadLimits{Jobs: 1}), scriptcase.Pushes(named...),
			scriptcase.BuriesJobs("a", "b", "c")),
		queueCase("queue_nack/cancelled", hour, nacks(0), scriptcase.Pushes(named...), takes(3),
			scriptcase.Cancels("a", "c")),
		queueCase("queue_reclaim/cancelled", soon, scriptcase.Reclaims, scriptcase.Pushes(named...), takes(3),
			scriptcase.Cancels("a", "c")),
		queueCase("queue_requeue/ids", hour, scriptcase.Requeues("a", "c", "absent"), scriptcase.Pushes(named...),
			takes(3), buries),
		queueCase("queue_trim/some", hour, trims(queue.DeadLimits{Jobs: 1}), scriptcase.Pushes(named...),
			takes(3), buries),
		queueCase("queue_promote/many", hour, scriptcase.Promotes,
			scriptcase.Pushes(lab.Numbered(1000, time.Millisecond)...)),
	}, otherCases(), semCases())
}

// twoQueuesCase is a take of all jobs of two queues, ready and due. The failed write is one of either queue.
func twoQueuesCase() failpointCase {
	queues := func(c lua.Client, k string) (out []queue.Source, err error) {
		for _, name := range []string{"first", "second"} {
			var q *queue.Queue
			if q, err = queue.New(c, name, &queue.Options{Tag: k}); err != nil {
				return nil, err
			}
			out = append(out, queue.Source{Queue: q})
		}
		return out, nil
	}
	prepare := func(ctx context.Context, _ *testing.T, c *redis.Client, k string) error {
		from, err := queues(c, k)
		for i := 0; i < len(from) && err == nil; i++ {
			for _, delay := range []time.Duration{0, time.Millisecond} {
				jobs := lab.Numbered(3, delay)
				for n := range jobs {
					jobs[n].ID = fmt.Sprint(from[i].Queue.Name(), delay, n)
				}
				if _, err = from[i].Queue.Push(ctx, jobs...); err != nil {
					return err
				}
			}
		}
		return err
	}
	take := func(ctx context.Context, c lua.Client, k string) (string, error) {
		p := queuescript.TakeParams{Max: 100, Bytes: 10_000, Token: 1, Since: 1}
		for _, name := range []string{"first", "second"} {
			p.Queues = append(p.Queues, scriptcase.TakeQueue("{"+k+"}{"+name+"}", "me"))
		}
		_, err := queuescript.Take(ctx, c, p)
		return "", err
	}
	return failpointCase{"queue_take/two queues", prepare, take, nil}
}

// thenPush pushes, after a fault, new jobs with the ids that were cancelled: the accepted ones must be delivered.
func thenPush(fc failpointCase) failpointCase {
	fc.then = func(ctx context.Context, t *testing.T, c *redis.Client, k, fault string) {
		q, err := queue.New(c, k, nil)
		require.NoError(t, err)
		pushed, err := q.Push(ctx, queue.Job{ID: "j0", Body: []byte("new")}, queue.Job{ID: "j1", Body: []byte("new")},
			queue.Job{ID: "j3", Body: []byte("new")})
		require.NoError(t, err)
		require.Equal(t, 3, pushed.Ready+len(pushed.Duplicates))
		delivered := make(map[string]bool)
		for more := true; more; {
			taken, err := q.Take(ctx, 2)
			require.NoError(t, err)
			for _, d := range taken.Deliveries {
				delivered[d.ID] = delivered[d.ID] || string(d.Body) == "new"
				require.NotEmpty(t, d.Body, "a cancelled job: %s", fault)
			}
			more = len(taken.Deliveries)+taken.Dropped > 0
		}
		for _, dup := range pushed.Duplicates {
			require.False(t, delivered[dup.ID])
			delivered[dup.ID] = true
		}
		for _, id := range pushed.IDs {
			require.True(t, delivered[id], "%s was accepted and is lost: %s", id, fault)
		}
	}
	return fc
}

// thenTake takes all jobs after a fault: each is delivered with its body or not at all.
func thenTake(fc failpointCase) failpointCase {
	fc.then = func(ctx context.Context, t *testing.T, c *redis.Client, k, fault string) {
		q, err := queue.New(c, k, nil)
		require.NoError(t, err)
		taken, err := q.Take(ctx, 10)
		require.NoError(t, err)
		for _, d := range taken.Deliveries {
			require.NotEmpty(t, d.Body, "%s was delivered without its body: %s", d.ID, fault)
		}
	}
	return fc
}

// otherCases are the branches of lock and call scripts that ScriptCalls does not reach.
func otherCases() []failpointCase {
	base := make(map[string]scriptcase.ScriptCall)
	for _, call := range scriptcase.ScriptCalls() {
		base[call.Script.Name] = call
	}
	more := func(name string, add func(ctx context.Context, t *testing.T, c *redis.Client,
		k string) error) failpointCase {
		script, _, _ := strings.Cut(name, "/")
		call := base[script]
		return failpointCase{name: name, run: call.Run, prepare: func(ctx context.Context, t *testing.T,
			c *redis.Client, k string) error {
			if err := call.Prepare(ctx, c, k); err != nil {
				return err
			}
			return add(ctx, t, c, k)
		}}
	}
	awaited := func(ctx context.Context, t *testing.T, c *redis.Client, k string) error {
		err := c.ZAdd(ctx, "{"+k+"}:w", redis.Z{Score: lab.Future - 1, Member: k + "dead"},
			redis.Z{Score: lab.Future, Member: k + "n"}).Err()
		return errors.Join(err, lab.Subscribe(ctx, t, c, k+"n"))
	}
	one := queueCase("queue_push/one awaited", queue.Options{}, scriptcase.Pushes(queue.Job{ID: "one"}))
	one.prepare = awaited
	return []failpointCase{
		one,
		more("queue_push/awaited", awaited),
		more("queue_push_many/awaited", awaited),
		more("queue_take/awaited", awaited),
		more("queue_nack/awaited", awaited),
		more("queue_reclaim/awaited", awaited),
		more("queue_requeue/awaited", awaited),
		more("queue_reschedule/awaited", awaited),
		more("queue_promote/awaited", awaited),
		more("lock_acquire/lapsed", func(ctx context.Context, _ *testing.T, c *redis.Client, k string) error {
			return c.Set(ctx, "lock:{"+k+"}", "2 7 0 - other 0 7200000 note", time.Hour).Err()
		}),
		more("rpc_decide/received", func(ctx context.Context, t *testing.T, c *redis.Client, k string) error {
			return lab.Subscribe(ctx, t, c, k+"n")
		}),
		more("rpc_cast/received", func(ctx context.Context, t *testing.T, c *redis.Client, k string) error {
			return lab.Subscribe(ctx, t, c, k+"n")
		}),
		more("rpc_find/dead nodes", func(ctx context.Context, _ *testing.T, c *redis.Client, k string) error {
			return c.ZAdd(ctx, "{"+k+"}:methods", redis.Z{Member: "x\x00dead"}, redis.Z{Member: "x\x00dead too"}).Err()
		}),
		more("rpc_leave/known", func(ctx context.Context, _ *testing.T, c *redis.Client, k string) error {
			if err := c.ZAdd(ctx, "{"+k+"}:nodes", redis.Z{Score: lab.Future, Member: "n"}).Err(); err != nil {
				return err
			}
			return c.ZAdd(ctx, "{"+k+"}:methods", redis.Z{Member: "x\x00n"}).Err()
		}),
	}
}
