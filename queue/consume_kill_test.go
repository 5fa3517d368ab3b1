package queue_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

var (
	killCount = flag.Int("kills", 80, "how many workers TestKilledWorkersLoseNothing kills")
	killSeed  = flag.Uint64("killseed", 0, "seed of TestKilledWorkersLoseNothing; 0 for a new one")
)

const (
	// killLease outlasts a machine that stalls for a second.
	killLease       = 1500 * time.Millisecond
	killWorkers     = 4
	killConcurrency = 4
	// killBacklog keeps jobs ready, so that workers die while they work.
	killBacklog = 100
	// killDelay is how long after the end of a dead worker's lease its jobs may wait for another worker, behind the
	// backlog, on a machine that has more to do.
	killDelay = 20 * time.Second
)

// The environment of a worker process.
const (
	killEnvName  = "LUATOMIC_TEST_WORKER"
	killEnvQueue = "LUATOMIC_TEST_QUEUE"
	killEnvSeed  = "LUATOMIC_TEST_SEED"
)

// diary is a stream in which all processes record what happens to the jobs. The server stamps each entry.
type diary struct {
	c   *redis.Client
	key string
}

// Events of the diary.
const (
	wroteStart  = "start"  // a handler begins: job, attempt, deadline
	wroteDone   = "done"   // a handler has done its work: job, attempt
	wroteLost   = "lost"   // a live worker learns that its lease is lost: job
	wroteDoomed = "doomed" // the worker is about to be killed
	wroteKilled = "killed" // it is dead
)

func (d diary) write(ctx context.Context, event, worker, job string, attempt int, deadline int64) error {
	return d.c.XAdd(ctx, &redis.XAddArgs{Stream: d.key, Values: []any{"event", event, "worker", worker, "job", job,
		"attempt", attempt, "deadline", deadline}}).Err()
}

// entry is one record of the diary; at and deadline are ms of the server's clock.
type entry struct {
	event, worker, job string
	attempt            int
	deadline, at       int64
}

func (d diary) read(ctx context.Context, t *testing.T) []entry {
	lines, err := d.c.XRange(ctx, d.key, "-", "+").Result()
	require.NoError(t, err)
	out := make([]entry, len(lines))
	for i, l := range lines {
		number := func(text string) int64 {
			n, err := strconv.ParseInt(text, 10, 64)
			require.NoError(t, err)
			return n
		}
		text := func(field string) string { return l.Values[field].(string) }
		ms, _, _ := strings.Cut(l.ID, "-")
		out[i] = entry{text("event"), text("worker"), text("job"), int(number(text("attempt"))),
			number(text("deadline")), number(ms)}
	}
	return out
}

// TestWorkerProcess is what the processes of TestKilledWorkersLoseNothing run: a consumer, until its standard input
// ends or it is killed.
func TestWorkerProcess(t *testing.T) {
	name := os.Getenv(killEnvName)
	if name == "" {
		t.Skip("runs as a process of TestKilledWorkersLoseNothing")
	}
	c := luatomictest.Client(t)
	q, err := queue.New(c, os.Getenv(killEnvQueue), &queue.Options{Lease: killLease, MaxFailures: -1})
	require.NoError(t, err)
	seed, err := strconv.ParseUint(os.Getenv(killEnvSeed), 10, 64)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Println("ready")
	d := diary{c, q.Name() + "-diary"}
	_, err = q.Consume(ctx, &queue.ConsumeOptions{Concurrency: killConcurrency, Idle: 200 * time.Millisecond,
		Backoff: noWait, OnError: func(err error) {
			var lost *queue.LeaseLostError
			if errors.As(err, &lost) {
				for _, id := range lost.IDs {
					_ = d.write(context.WithoutCancel(ctx), wroteLost, name, id, 0, 0)
				}
			}
		}}, workerHandler(d, name, rand.New(rand.NewPCG(seed, 0))))
	require.ErrorIs(t, err, context.Canceled)
}

// workerHandler runs up to 20 ms, and one time in twenty longer than a lease.
func workerHandler(d diary, name string, rnd *rand.Rand) queue.Handler {
	var mu sync.Mutex
	draw := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if rnd.IntN(20) == 0 {
			return killLease + killLease/2
		}
		return time.Duration(rnd.IntN(20_000)) * time.Microsecond
	}
	return func(ctx context.Context, j *queue.Delivery) error {
		if err := d.write(ctx, wroteStart, name, j.ID, j.Attempt, j.Deadline().UnixMilli()); err != nil {
			return err
		}
		work := time.NewTimer(draw())
		defer work.Stop()
		select {
		case <-work.C:
			return d.write(ctx, wroteDone, name, j.ID, j.Attempt, 0)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Workers die by SIGKILL in every phase of their work, and others take over. No job is lost, none is delivered
// again without a cause, and none waits long after the lease of its dead worker has ended.
func TestKilledWorkersLoseNothing(t *testing.T) {
	t.Parallel()
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-killseed=%d -kills=%d", seed, *killCount)
	q, c := lab.NewQueue(t, &queue.Options{Lease: killLease, MaxFailures: -1})
	d := diary{c, q.Name() + "-diary"}
	pushed := runAndKill(t, q, d, seed)
	checkDrained(t, q, pushed)
	checkDiary(t, d.read(t.Context(), t), pushed)
}

// runAndKill keeps the queue full and kills workers until the kills are used up, then lets the last ones finish. It
// returns how many jobs it pushed, named 0, 1, 2 ...
func runAndKill(t *testing.T, q *queue.Queue, d diary, seed uint64) int {
	var left atomic.Int64
	left.Store(int64(*killCount))
	finish := make(chan struct{})
	errs := make(chan error, killWorkers+1)
	var slots sync.WaitGroup
	t.Cleanup(slots.Wait) // no process stays, also after a failure
	slots.Go(func() { errs <- runSurvivor(t, q.Name(), rand.New(rand.NewPCG(seed, killWorkers)), finish) })
	for slot := range killWorkers {
		rnd := rand.New(rand.NewPCG(seed, uint64(slot)))
		slots.Go(func() { errs <- killOneByOne(t, q.Name(), d, slot, rnd, &left, finish) })
	}
	pushed, open := 0, killWorkers+1
	feed := time.NewTicker(5 * time.Millisecond)
	defer feed.Stop()
	deadline := time.Now().Add(time.Duration(*killCount)*time.Second + time.Minute)
	for stopped := false; open > 0; {
		select {
		case err := <-errs:
			require.NoError(t, err)
			open--
			continue
		case <-feed.C:
		}
		require.True(t, time.Now().Before(deadline), "not finished in time; %d kills left", left.Load())
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		switch waiting := s.Ready + s.Scheduled; {
		case left.Load() > 0 && waiting < killBacklog:
			batch := make([]queue.Job, killBacklog)
			for i := range batch {
				batch[i].ID = strconv.Itoa(pushed + i)
			}
			_, err := q.Push(t.Context(), batch...)
			require.NoError(t, err)
			pushed += len(batch)
		case left.Load() <= 0 && waiting+s.Leased == 0 && !stopped:
			close(finish)
			stopped = true
		}
	}
	return pushed
}

// runSurvivor runs a worker that is not killed, so that one can always take over.
func runSurvivor(t *testing.T, q string, rnd *rand.Rand, finish <-chan struct{}) error {
	w, err := startWorker(t, "survivor", q, rnd.Uint64())
	if err != nil {
		return err
	}
	return w.StopAt(t.Context(), finish)
}

// killOneByOne runs one worker after the other and kills each, some immediately and some after more than a lease,
// until the kills are used up. The last one ends by itself.
func killOneByOne(t *testing.T, q string, d diary, slot int, rnd *rand.Rand, left *atomic.Int64,
	finish <-chan struct{}) error {
	for n := 0; ; n++ {
		name := fmt.Sprintf("%d.%d", slot, n)
		w, err := startWorker(t, name, q, rnd.Uint64())
		if err != nil {
			return err
		}
		if left.Add(-1) < 0 {
			return w.StopAt(t.Context(), finish)
		}
		lifetime := time.NewTimer(drawLifetime(rnd))
		select {
		case <-lifetime.C:
		case <-t.Context().Done():
			lifetime.Stop()
		}
		doomed := d.write(t.Context(), wroteDoomed, name, "", 0, 0)
		w.Kill()
		if err := errors.Join(doomed, d.write(t.Context(), wroteKilled, name, "", 0, 0)); err != nil {
			return err
		}
	}
}

// drawLifetime is 80 ms in the mean, and one time in thirty more than a lease.
func drawLifetime(rnd *rand.Rand) time.Duration {
	life := time.Duration(rnd.ExpFloat64() * 80 * float64(time.Millisecond))
	if rnd.IntN(30) == 0 {
		life += killLease
	}
	return min(life, 2*killLease)
}

func startWorker(t *testing.T, name, q string, seed uint64) (*lab.Worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-test.run=^TestWorkerProcess$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), killEnvName+"="+name, killEnvQueue+"="+q,
		fmt.Sprintf("%s=%d", killEnvSeed, seed),
		"LUATOMIC_REDIS_URL="+luatomictest.URL(t), "GORACE=atexit_sleep_ms=0")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w := &lab.Worker{Cmd: cmd, Stdin: stdin, Out: bufio.NewScanner(stdout)}
	for w.Out.Scan() {
		if w.Out.Text() == "ready" {
			return w, nil
		}
	}
	w.Kill()
	return nil, fmt.Errorf("worker %s did not come up", name)
}

// checkDrained wants no key of a job to be left.
func checkDrained(t *testing.T, q *queue.Queue, pushed int) {
	require.Positive(t, pushed)
	c := luatomictest.Client(t)
	for _, suffix := range []string{"r", "s", "l", "d", "b", "n", "u", "ux"} {
		require.Zero(t, c.Exists(t.Context(), lab.Key(q, suffix)).Val(), "%s is not empty", lab.Key(q, suffix))
	}
}

// checkDiary wants every job finished, and for every repeated delivery a dead worker, or a slow one that reported
// the loss of its lease.
func checkDiary(t *testing.T, lines []entry, pushed int) {
	doomed, killed := make(map[string]int64), make(map[string]int64)
	// A live worker that a busy machine kept from extending reports the loss, or finishes a job that another has
	// finished before, which its ack cannot tell apart.
	gaveUp, done := make(map[string]bool), make(map[string]int)
	starts := make(map[string][]entry)
	for _, l := range lines {
		switch l.event {
		case wroteDoomed:
			doomed[l.worker] = l.at
		case wroteKilled:
			killed[l.worker] = l.at
		case wroteLost:
			gaveUp[l.worker+" "+l.job] = true
		case wroteDone:
			done[l.job]++
			gaveUp[l.worker+" "+l.job] = true
		case wroteStart:
			starts[l.job] = append(starts[l.job], l)
		}
	}
	require.Len(t, killed, *killCount)
	var unseen, slow int
	var waits []time.Duration
	for i := range pushed {
		job := strconv.Itoa(i)
		require.Positive(t, done[job], "job %s is lost: %+v", job, starts[job])
		tries := starts[job]
		slices.SortStableFunc(tries, func(a, b entry) int { return cmp.Compare(a.attempt, b.attempt) })
		unseen += tries[0].attempt - 1
		for n, again := range tries[1:] {
			last := tries[n]
			require.Less(t, last.attempt, again.attempt, "job %s was delivered twice in one attempt: %+v", job, tries)
			require.GreaterOrEqual(t, again.at, last.deadline, "job %s was reclaimed before its lease ended: %+v", job,
				tries)
			unseen += again.attempt - last.attempt - 1
			at, dead := doomed[last.worker]
			switch {
			case again.attempt > last.attempt+1: // the next worker died before its record
			case dead && at <= again.at:
				waits = append(waits, time.Duration(max(again.at-killed[last.worker], 0))*time.Millisecond)
			default:
				slow++
				// Or it was killed before its record.
				require.True(t, dead || gaveUp[last.worker+" "+job], "job %s was delivered again without a cause: %+v",
					job, tries)
			}
		}
	}
	require.Len(t, starts, pushed)
	require.NotEmpty(t, waits, "no kill hit a job")
	longest := slices.Max(waits)
	t.Logf("%d jobs, %d kills; delivered again: %d after %v at most, %d that died unseen, %d of slow workers", pushed,
		len(killed), len(waits), longest, unseen, slow)
	// A machine that stalls for a moment may cost the jobs in flight then.
	require.LessOrEqual(t, slow, max(pushed/50, 60), "live workers lose their leases")
	require.LessOrEqual(t, unseen, *killCount*killConcurrency,
		"more jobs were reclaimed than the dead workers can have held")
	require.LessOrEqual(t, longest, killLease+killDelay, "a job of a dead worker waited too long")
}
