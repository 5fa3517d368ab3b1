package queue_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// names are the queues of a prefix, each with its tag.
func names(t *testing.T, c *redis.Client, prefix string) (out []string) {
	t.Helper()
	found, err := queue.Queues(t.Context(), c, &queue.Options{Prefix: prefix})
	require.NoError(t, err)
	for _, q := range found {
		out = append(out, q.Tag()+"/"+q.Name())
	}
	return out
}

// A queue is listed from its first push, consumer or poller on, with its tag, under its prefix alone. What another
// program wrote into the list is left out.
func TestQueuesAreListed(t *testing.T) {
	t.Parallel()
	ctx, c, prefix := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)+":"
	open := func(name, tag string) *queue.Queue {
		return lab.Must(queue.New(c, name, &queue.Options{Prefix: prefix, Tag: tag}))
	}
	require.Empty(t, names(t, c, prefix))
	lab.Push(t, open("mail", ""), queue.Job{})
	_, err := queue.PushAll(ctx, queue.Batch{Queue: open("bill", "orders"), Jobs: lab.Bodies(1)},
		queue.Batch{Queue: open("mail", "orders"), Jobs: lab.Bodies(1)})
	require.NoError(t, err)
	_, err = open("consumed", "").Consume(ctx, &queue.ConsumeOptions{Drain: true}, acks)
	require.NoError(t, err)
	polling, stop := context.WithCancel(ctx)
	polled := make(chan error, 1)
	go func() { polled <- queue.NewPoller(nil, open("polled", "")).Run(polling) }()
	luatomictest.Eventually(t, time.Minute, "the poller lists its queue", func() bool {
		return lab.Must(open("polled", "").Listed(ctx))
	})
	stop()
	require.ErrorIs(t, <-polled, context.Canceled)
	fleet := keys.NewFleet(prefix)
	require.NoError(t, c.ZAdd(ctx, fleet.Queues, redis.Z{Score: 1e13, Member: "{}{"}).Err())
	require.Equal(t, []string{"/consumed", "/mail", "orders/bill", "orders/mail", "/polled"}, names(t, c, prefix))
	require.Empty(t, names(t, c, prefix+"other:"))
	require.True(t, lab.Must(open("mail", "orders").Listed(ctx)))
	require.False(t, lab.Must(open("typo", "").Listed(ctx)))
	found, err := queue.Queues(ctx, c, &queue.Options{Prefix: prefix})
	require.NoError(t, err)
	stats, err := found[2].Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, stats.Ready, "a listed queue is open")
	require.Positive(t, c.PTTL(ctx, fleet.Queues).Val())
}

// Pushes are one script each: those of five seconds name their queues in one more.
func TestPushesShareTheNamingOfTheirQueues(t *testing.T) {
	t.Parallel()
	c := luatomictest.StartServer(t).Client()
	mail, bill := lab.Must(queue.New(c, "mail", nil)), lab.Must(queue.New(c, "bill", nil))
	lab.Push(t, mail, queue.Job{})
	lab.Push(t, bill, queue.Job{})
	luatomictest.Eventually(t, 20*time.Second, "they are listed", func() bool { return len(names(t, c, "")) == 2 })
	began, before := time.Now(), lab.Calls(t, c)["evalsha"]
	for range 10 {
		lab.Push(t, mail, queue.Job{})
		lab.Push(t, bill, queue.Job{})
	}
	most := before + 20 + int(time.Since(began)/(5*time.Second))
	require.LessOrEqual(t, lab.Calls(t, c)["evalsha"], most)
	luatomictest.Eventually(t, 20*time.Second, "the queues are named", func() bool {
		return lab.Calls(t, c)["evalsha"] > before+20
	})
	require.LessOrEqual(t, lab.Calls(t, c)["evalsha"], most+1)
}

// The plain commands that read describe a key of another type as scripts do.
func TestReadsNameTheKeyOfTheWrongType(t *testing.T) {
	t.Parallel()
	ctx, c, prefix := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)+":"
	q := lab.Must(queue.New(c, "q", &queue.Options{Prefix: prefix}))
	fleet := keys.NewFleet(prefix)
	day := fleet.Counts(time.Now().UTC().Format(time.DateOnly))
	for _, test := range []struct {
		key  string
		want string
		read func() error
	}{
		{prefix + "{q}:d", "zset", func() error { _, err := q.Requeue(ctx); return err }},
		{prefix + "{q}:r", "list", func() error { _, err := q.Audit(ctx, false); return err }},
		{fleet.Queues, "zset", func() error {
			_, err := queue.Queues(ctx, c, &queue.Options{Prefix: prefix})
			return err
		}},
		{fleet.Queues, "zset", func() error { _, err := q.Listed(ctx); return err }},
		{fleet.Workers, "zset", func() error { _, err := queue.Workers(ctx, c, prefix); return err }},
		{day, "hash", func() error { _, err := q.Counts(ctx, 2); return err }},
	} {
		require.NoError(t, c.Set(ctx, test.key, "x", 0).Err())
		var err error
		luatomictest.Eventually(t, 20*time.Second, "the key is named", func() bool { // asking for its type has a second
			err = test.read()
			require.ErrorIs(t, err, lua.ErrWrongType)
			return strings.Contains(err.Error(), "holds a string")
		})
		require.ErrorContains(t, err, fmt.Sprintf("key %q holds a string, not a %s", test.key, test.want))
		require.NoError(t, c.Del(ctx, test.key).Err())
	}
}

// widestBatch has a job for each of as many new queues as a PushAll can have.
func widestBatch(c *redis.Client, tag string) (batch []queue.Batch) {
	for i := range queue.MaxBatchQueues {
		q := lab.Must(queue.New(c, fmt.Sprint("q", i), &queue.Options{Prefix: tag + ":", Tag: tag}))
		batch = append(batch, queue.Batch{Queue: q, Jobs: lab.Bodies(1)})
	}
	return batch
}

// A producer is listed however far the server is, and a batch names all its queues in one call.
func TestAProducerFarAwayIsListed(t *testing.T) {
	t.Parallel()
	c, tag := luatomictest.Client(t), luatomictest.Namespace(t)
	batch := widestBatch(c, tag)
	pushing, ended := context.WithCancel(t.Context())
	var reports atomic.Int32
	c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.ReportScript), Do: func(run func() error) error {
		reports.Add(1)
		ended()                            // the pushes are over: their program goes on
		time.Sleep(300 * time.Millisecond) // the round trip
		return run()
	}})
	require.NoError(t, lua.Preload(t.Context(), c, &queuescript.ReportScript))
	_, err := queue.PushAll(pushing, batch...)
	require.NoError(t, err)
	luatomictest.Eventually(t, 20*time.Second, "all queues are listed", func() bool {
		return len(names(t, c, tag+":")) == len(batch)
	})
	require.EqualValues(t, 1, reports.Load())
	pushAll(t, batch...)
	luatomictest.Eventually(t, 20*time.Second, "they are named again", func() bool { return reports.Load() > 1 })
	require.EqualValues(t, 2, reports.Load())
}

// A list that cannot be written holds up the first push for a second, however many queues it names.
func TestAListThatDoesNotAnswerHoldsUpNoPush(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	answer := make(chan struct{})
	t.Cleanup(func() { close(answer) })
	c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.ReportScript), Do: func(func() error) error {
		<-answer
		return redis.ErrClosed // it is not tried again
	}})
	batch := widestBatch(c, luatomictest.Namespace(t))
	pushed := make(chan error, 1)
	go func() {
		_, err := queue.PushAll(t.Context(), batch...)
		pushed <- err
	}()
	require.NoError(t, lab.Soon(t, 5*time.Second, "the push", pushed))
}

// A live consumer is listed with what it has since when, and leaves the list when it stops. Its work is counted.
func TestWorkersAndCounts(t *testing.T) {
	t.Parallel()
	ctx, c, prefix := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)+":"
	q := lab.Must(queue.New(c, "mail", &queue.Options{Prefix: prefix, MaxFailures: 2}))
	lab.Push(t, q, queue.Job{ID: "held", Kind: "k"}, queue.Job{ID: "fails"}, queue.Job{ID: "done"},
		queue.Job{ID: "expired", ExpiresAt: time.Now().Add(-time.Hour)})
	release := make(chan struct{})
	ended := make(chan error, 1)
	began := time.Now()
	go func() {
		_, err := q.Consume(ctx, &queue.ConsumeOptions{Drain: true, Concurrency: 3, Backoff: noWait},
			func(_ context.Context, d *queue.Delivery) error {
				switch d.ID {
				case "held":
					<-release
				case "fails":
					return errors.New("no")
				}
				return nil
			})
		ended <- err
	}()
	var workers []queue.Worker
	luatomictest.Eventually(t, 10*time.Second, "a report with the job that is held", func() bool {
		workers = lab.Must(queue.Workers(ctx, c, prefix))
		return len(workers) == 1 && workers[0].Consumers[0].Holds == 1
	})
	w := workers[0]
	require.Equal(t, os.Getpid(), w.PID)
	require.Equal(t, lab.Must(os.Hostname()), w.Host)
	require.NotEmpty(t, w.ID)
	require.Equal(t, "mail", w.Consumers[0].Queue)
	require.Equal(t, 3, w.Consumers[0].Concurrency)
	held := w.Consumers[0].Holding[0]
	require.Equal(t, queue.Holding{ID: "held", Kind: "k", Attempt: 1, Since: held.Since}, held)
	require.WithinDuration(t, began, held.Since, 5*time.Second)
	close(release)
	require.NoError(t, lab.Soon(t, 10*time.Second, "the drain", ended))
	luatomictest.Eventually(t, 10*time.Second, "the process leaves the list", func() bool {
		return len(lab.Must(queue.Workers(ctx, c, prefix))) == 0
	})
	days, err := q.Counts(ctx, 2)
	require.NoError(t, err)
	require.Len(t, days, 2)
	sum := queue.DayCounts{Processed: days[0].Processed + days[1].Processed, Failed: days[0].Failed + days[1].Failed,
		Dead: days[0].Dead + days[1].Dead, Expired: days[0].Expired + days[1].Expired} // the day may have changed
	require.Equal(t, queue.DayCounts{Processed: 2, Failed: 2, Dead: 1, Expired: 1}, sum)
}

// A process that has more jobs than fit into a report names fewer of them, and counts all.
func TestAReportIsBounded(t *testing.T) {
	t.Parallel()
	const consumers, each = 40, 100
	c, prefix := luatomictest.Client(t), luatomictest.Namespace(t)+":"
	q := lab.Must(queue.New(c, "mail", &queue.Options{Prefix: prefix, Lease: time.Hour}))
	for range consumers {
		jobs := make([]queue.Job, each)
		for i := range jobs {
			jobs[i] = queue.Job{ID: rand.Text() + strings.Repeat("<", 100), Kind: strings.Repeat("k", 128)}
		}
		lab.Push(t, q, jobs...)
	}
	release, ended := make(chan struct{}), make(chan error, consumers)
	for range consumers {
		go func() {
			_, err := q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true, Concurrency: each},
				func(context.Context, *queue.Delivery) error { <-release; return nil })
			ended <- err
		}()
	}
	luatomictest.Eventually(t, time.Minute, "all jobs are counted, and some named", func() bool {
		holds, named := 0, 0
		for _, w := range lab.Must(queue.Workers(t.Context(), c, prefix)) {
			for _, of := range w.Consumers {
				holds, named = holds+of.Holds, named+len(of.Holding)
			}
		}
		return holds == consumers*each && named > 0
	})
	close(release)
	for range consumers {
		require.NoError(t, lab.Soon(t, time.Minute, "the drain", ended))
	}
}

// Consumers of one process share one report each five seconds. Where they end at the same moment, the process leaves
// the list, whichever of them reports last.
func TestAProcessSendsOneReport(t *testing.T) {
	t.Parallel()
	c := luatomictest.StartServer(t).Client()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{}, 20)
	for i := range 20 {
		q := lab.Must(queue.New(c, "q"+string(rune('a'+i)), nil))
		go func() { _, _ = q.Consume(ctx, nil, acks); ended <- struct{}{} }()
	}
	luatomictest.Eventually(t, 20*time.Second, "all are listed", func() bool {
		found, err := queue.Queues(ctx, c, nil)
		return err == nil && len(found) == 20
	})
	workers := lab.Must(queue.Workers(ctx, c, ""))
	require.Len(t, workers, 1)
	require.Len(t, workers[0].Consumers, 20)
	stop()
	for range 20 {
		<-ended
	}
	luatomictest.Eventually(t, 5*time.Second, "the process leaves the list", func() bool {
		return len(lab.Must(queue.Workers(t.Context(), c, ""))) == 0
	})
}

// A report that is repeated, since its reply was lost, counts nothing twice. A process that is silent is removed by the
// report of another.
func TestARepeatedReportCountsNothing(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	report := func(process string, number int64) int64 {
		return lab.Must(queuescript.Report(ctx, c, queuescript.ReportParams{Queues: "{" + k + "}q",
			Workers: "{" + k + "}w",
			About:   "{" + k + "}a", Counts: "{" + k + "}n",
			Process: process, Number: number, Lease: time.Minute,
			Entries: []queuescript.ReportEntry{{Queue: "{q}", Processed: 2, Dead: 1}}})).Last
	}
	require.Equal(t, int64(1), report("me", 1))
	require.Equal(t, int64(1), report("me", 1))
	require.Equal(t, int64(2), report("me", 2))
	require.Equal(t, int64(2), report("me", 1), "an old one, late")
	require.Equal(t, int64(2), report("me", 2), "and a repeat behind it")
	require.Equal(t, map[string]string{"{q}\np": "4", "{q}\nd": "2"}, c.HGetAll(ctx, "{"+k+"}n").Val())
	require.NoError(t,
		c.ZAdd(ctx, "{"+k+"}w", redis.Z{Score: float64(time.Now().Add(-2 * time.Minute).UnixMilli()),
			Member: "me"}).Err())
	require.Equal(t, int64(1), report("other", 1))
	require.Equal(t, []string{"other"}, c.ZRange(ctx, "{"+k+"}w", 0, -1).Val())
	require.ElementsMatch(t, []string{"", "other"}, c.HKeys(ctx, "{"+k+"}a").Val())
	for _, name := range []string{"q", "w", "a", "n"} {
		require.Positive(t, c.PTTL(ctx, "{"+k+"}"+name).Val(), name)
	}
}

// A copy of an earlier report that arrives after the last one of a process does not list that again.
func TestALateCopyOfAReportListsNoWorker(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), "{"+luatomictest.Namespace(t)+"}"
	report := func(number int64, lease time.Duration) {
		require.Equal(t, int64(2), lab.Must(queuescript.Report(ctx, c, queuescript.ReportParams{Queues: k + "q",
			Workers: k + "w", About: k + "a", Counts: k + "n", Process: "me", Number: number, Lease: lease})).Last)
	}
	end := func() float64 { return c.ZScore(ctx, k+"w", "me").Val() }
	report(2, time.Minute)
	first := end()
	report(2, time.Hour)
	require.Greater(t, end(), first, "a repeat keeps the process on the list")
	report(2, time.Millisecond)
	last := end()
	report(1, time.Minute)
	require.Equal(t, last, end())
}

// The report of a producer names its queues, and makes it no worker.
func TestTheReportOfAProducerMakesNoWorker(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), "{"+luatomictest.Namespace(t)+"}"
	_, err := queuescript.Report(ctx, c, queuescript.ReportParams{Queues: k + "q", Workers: k + "w", About: k + "a",
		Counts: k + "n",
		Lease:  time.Minute, Entries: []queuescript.ReportEntry{{Queue: "{q}"}}})
	require.NoError(t, err)
	require.Equal(t, []string{"{q}"}, c.ZRange(ctx, k+"q", 0, -1).Val())
	require.Zero(t, c.Exists(ctx, k+"w", k+"a").Val())
}

// A poller pushes nothing: it is the poller that names its queue again after a failure.
func TestAPollerNamesItsQueueAfterAFailure(t *testing.T) {
	t.Parallel()
	c, name := luatomictest.Client(t), luatomictest.Namespace(t)
	var failed atomic.Bool
	c.AddHook(&lab.Around{Sha: lab.Digest(&queuescript.ReportScript), Do: func(run func() error) error {
		if failed.CompareAndSwap(false, true) {
			return redis.ErrClosed // a failure that no call repeats
		}
		return run()
	}})
	q := lab.Must(queue.New(lua.Direct(c), name, nil))
	polling, stop := context.WithCancel(t.Context())
	polled := make(chan error, 1)
	go func() { polled <- queue.NewPoller(nil, q).Run(polling) }()
	luatomictest.Eventually(t, 40*time.Second, "the poller lists its queue", func() bool {
		return lab.Must(q.Listed(t.Context()))
	})
	require.True(t, failed.Load())
	stop()
	require.ErrorIs(t, <-polled, context.Canceled)
}

// The days are those of UTC, one after the other, also in a zone whose clocks changed on one of them.
func TestDaysOfCountsAreThoseOfUTC(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for _, now := range []time.Time{
		time.Date(2026, 10, 26, 1, 30, 0, 0, berlin), time.Date(2026, 3, 30, 1, 30, 0, 0, berlin),
	} {
		days := queue.LastDays(now, 4)
		for i, day := range days {
			require.Equal(t, now.UTC().AddDate(0, 0, -i).Format(time.DateOnly), day, "%v: %v", now, days)
		}
	}
}
