package sidekiq_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// On a server at maxmemory workers drain the queues, and jobs of a dead process are put back.
func TestWorkersDrainAFullServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r := luatomictest.StartServer(t).Client()
	require.NoError(t, handed(ctx, r, ""))
	require.NoError(t, r.ConfigSet(ctx, "maxmemory", "1").Err())
	require.Error(t, r.LPush(ctx, "queue:a", "refused").Err())
	params := takeParams("")
	params.Dones = nil
	taken, err := script.WorkerTake(ctx, r, params)
	require.NoError(t, err)
	require.Len(t, taken.Jobs, 4)
	back, err := script.WorkerReturn(ctx, r, returnParams("", "lapsed", 2))
	require.NoError(t, err)
	require.EqualValues(t, 1, back.Returned)
	for _, call := range workerCalls()[3:] {
		moved, err := call.run(ctx, r, "")
		require.NoError(t, err)
		require.Equal(t, true, moved, call.script.Name)
		require.NoError(t, r.ConfigSet(ctx, "maxmemory", "0").Err())
		require.NoError(t, r.HSet(ctx, "working", "1", inFlightOf("", "a", `{"jid":"one"}`)).Err())
		require.NoError(t, r.ConfigSet(ctx, "maxmemory", "1").Err())
	}
}

func TestAWorkerUnderScriptFlush(t *testing.T) {
	t.Parallel()
	s := &site{t: t, client: luatomictest.StartServer(t).Client()}
	s.d = s.dialect(s.client, sidekiq.V7)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	flushed := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			if s.client.ScriptFlush(ctx).Err() == nil {
				n++
			}
		}
		flushed <- n
	}()
	const jobs = 300
	for i := range jobs {
		s.enqueue("default", payload("default", fmt.Sprint(i), ""))
	}
	var runs atomic.Int32
	end := s.work(s.d, nil, func(_ context.Context, j *sidekiq.Delivery) error {
		if runs.Add(1)%3 == 0 {
			return errSad
		}
		return nil
	})
	s.eventually("all are done", func() bool { return s.count("stat:processed") >= jobs })
	worked := end()
	cancel()
	require.Positive(t, <-flushed)
	require.Equal(t, sidekiq.Worked{Done: jobs - jobs/3, Retried: jobs / 3}, worked)
	require.Len(t, s.members("retry"), jobs/3)
}

// Times are Ruby's shortest text of the float, and never an integer.
func TestTimesOfAFailure(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	for micros, want := range map[string]string{
		"0": "1795230010.0", "29": "1795230010.000029", "29000": "1795230010.029", "999999": "1795230010.999999",
	} {
		calls := slices.Clone(workerCalls()[3:5])
		bury := func(ctx context.Context, c lua.Client, p string) (any, error) {
			return script.RetryBury(ctx, c, script.RetryBuryParams{Working: p + "working", To: p + "dead",
				Processed: p + "processed", ProcessedDay: p + "processed_day",
				Failed: p + "failed", FailedDay: p + "failed_day", ID: 1, Form: script.RetryBuryFormSeconds,
				Keep: time.Hour, Max: 4, Parts: [][]byte{nil, nil}})
		}
		calls = append(calls, workerCall{script: &script.RetryBuryScript, run: bury}, workerCalls()[6])
		for i, call := range calls {
			p := luatomictest.Namespace(t) + ":"
			ctx, end := context.WithCancel(t.Context())
			require.NoError(t, handed(ctx, c, p))
			require.NoError(t, c.Del(ctx, p+"dead").Err())
			kept := &lastCall{UniversalClient: c, end: end}
			_, err := call.run(ctx, kept, p)
			require.ErrorIs(t, err, errKept)
			eval := append([]any{"EVAL", clockAt(micros) + lab.Text(c, call.script)}, kept.args[2:]...)
			_, err = c.Do(t.Context(), eval...).Result()
			require.NoError(t, err)
			if call.script == &script.RetryLaterScript || call.script == &script.WorkerAsideScript {
				member := `{"jid":"one","failed_at":` + want + `}`
				score := strings.Replace(want, "1795230010", "1795230070", 1)
				got, err := c.ZScore(t.Context(), p+"retry", member).Result()
				require.NoError(t, err, member)
				require.Equal(t, score, fmt.Sprintf("%.6f", got)[:len(score)])
				continue
			}
			if i == 2 {
				require.NotZero(t, c.ZScore(t.Context(), p+"dead", want).Val(), want)
				continue
			}
			millis := "1795230010" + strings.Repeat("0", 6-len(micros)) + micros
			millis = millis[:13]
			require.NotZero(t, c.ZScore(t.Context(), p+"dead", `{"jid":"one","failed_at":`+millis+`}`).Val(), millis)
		}
	}
}

// Connections break before and after the script runs; each job is performed once and counted once.
func TestAWorkerOverALossyConnection(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	proxy := luatomictest.NewLossyProxy(t, server.URL())
	s := &site{t: t, client: server.Client()}
	const jobs = 400
	for i := range jobs {
		s.enqueue("default", payload("default", fmt.Sprint(i), ""))
	}
	lossy := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { _ = lossy.Close() })
	var n atomic.Int32
	every := func(args []string) bool {
		return strings.EqualFold(args[0], "EVALSHA") && n.Add(1)%5 == 0
	}
	proxy.Drop(40, every)
	proxy.DropRequest(20, every)
	var order []string
	record := s.record(&order)
	opts := &sidekiq.WorkOptions{Concurrency: 4}
	end := s.work(s.dialect(lossy, sidekiq.V7), opts, func(ctx context.Context, j *sidekiq.Delivery) error {
		_ = record(ctx, j)
		if strings.HasSuffix(j.JID, "7") {
			return errSad
		}
		return nil
	})
	s.eventually("all are done", func() bool { return s.count("stat:processed") >= jobs })
	require.Equal(t, sidekiq.Worked{Done: jobs - jobs/10, Retried: jobs / 10}, end())
	require.Equal(t, jobs, s.count("stat:processed"))
	require.Equal(t, jobs/10, s.count("stat:failed"))
	require.Len(t, s.members("retry"), jobs/10)
	require.Len(t, order, jobs, "each once")
	slices.Sort(order)
	require.Len(t, slices.Compact(order), jobs)
	require.Positive(t, proxy.Stats().Lost)
	require.Positive(t, proxy.Stats().Refused)
}
