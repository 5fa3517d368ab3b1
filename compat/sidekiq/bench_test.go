package sidekiq_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/luatomictest"
)

// BenchmarkPushBulk pushes 1000 payloads of 300 bytes, in turn with one LPUSH of such payloads, and reports the
// medians: jobs/s, the same of the raw command, and how many times as many that are.
func BenchmarkPushBulk(b *testing.B) {
	client := luatomictest.Client(b)
	ctx := context.Background()
	name := luatomictest.Namespace(b)
	d, err := sidekiq.New(client, &sidekiq.Options{Namespace: name})
	require.NoError(b, err)
	list := name + ":queue:bench"
	payloads := make([]any, 1000)
	for i, job := range finished(1000) {
		payloads[i] = job.Payload
	}
	for _, kind := range []struct {
		name string
		jobs []sidekiq.Job
	}{
		{"untouched", finished(1000)}, {"stamped", built(1000, "bench")},
		{"queues-2", append(built(500, "bench"), built(500, "bench2")...)},
	} {
		b.Run(kind.name, func(b *testing.B) {
			var raw, ours []time.Duration
			for b.Loop() {
				start := time.Now()
				require.NoError(b, client.LPush(ctx, list, payloads...).Err())
				raw = append(raw, time.Since(start))
				require.NoError(b, client.Del(ctx, list).Err())
				start = time.Now()
				_, err := d.PushBulk(ctx, kind.jobs)
				ours = append(ours, time.Since(start))
				require.NoError(b, err)
				require.NoError(b, client.Del(ctx, list, list+"2").Err())
			}
			b.ReportMetric(1000/median(ours).Seconds(), "jobs/s")
			b.ReportMetric(1000/median(raw).Seconds(), "raw-jobs/s")
			b.ReportMetric(median(raw).Seconds()/median(ours).Seconds(), "x-raw")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkMoveDue moves 1000 due jobs of 300 bytes in one call, in turn with the raw commands that read, add and
// remove as many, and reports the medians: jobs/s, the same of the raw commands, and how many times as many that are.
func BenchmarkMoveDue(b *testing.B) {
	client := luatomictest.Client(b)
	ctx := context.Background()
	name := luatomictest.Namespace(b)
	d, err := sidekiq.New(client, &sidekiq.Options{Namespace: name})
	require.NoError(b, err)
	for _, queues := range []int{1, 4} {
		due := make([]redis.Z, 1000)
		for i, job := range finished(1000) {
			queue := fmt.Sprintf(`"queue":"b%d"`, i%queues)
			member := bytes.Replace(job.Payload, []byte(`"queue":"bench"`), []byte(queue), 1)
			due[i] = redis.Z{Score: float64(i), Member: member}
		}
		b.Run(fmt.Sprint("queues-", queues), func(b *testing.B) {
			var raw, ours []time.Duration
			for b.Loop() {
				require.NoError(b, client.ZAdd(ctx, name+":raw", due...).Err())
				start := time.Now()
				moveRaw(b, client, name+":raw", name+":queue:b0")
				raw = append(raw, time.Since(start))
				require.NoError(b, client.Del(ctx, name+":queue:b0").Err())
				require.NoError(b, client.ZAdd(ctx, name+":schedule", due...).Err())
				start = time.Now()
				m, err := d.MoveDue(ctx, sidekiq.Schedule, 0)
				ours = append(ours, time.Since(start))
				require.NoError(b, err)
				require.Equal(b, 1000, m.Moved)
				for i := range queues {
					require.NoError(b, client.Del(ctx, fmt.Sprint(name, ":queue:b", i)).Err())
				}
			}
			b.ReportMetric(1000/median(ours).Seconds(), "jobs/s")
			b.ReportMetric(1000/median(raw).Seconds(), "raw-jobs/s")
			b.ReportMetric(median(raw).Seconds()/median(ours).Seconds(), "x-raw")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// moveRaw moves 1000 members to one list in two steps, without the checks and the new enqueued_at.
func moveRaw(b *testing.B, client redis.UniversalClient, set, list string) {
	for range 2 {
		members, err := client.ZRangeArgs(b.Context(), redis.ZRangeArgs{
			Key: set, Start: "-inf", Stop: "+inf", ByScore: true, Count: 500,
		}).Result()
		require.NoError(b, err)
		values := make([]any, len(members))
		for i, m := range members {
			values[i] = m
		}
		_, err = client.TxPipelined(b.Context(), func(p redis.Pipeliner) error {
			p.LPush(b.Context(), list, values...)
			p.ZRem(b.Context(), set, values...)
			return nil
		})
		require.NoError(b, err)
	}
}

// BenchmarkMoveDueLarge moves due jobs of 1 MiB in one call and reports the longest script, on a server of its own.
func BenchmarkMoveDueLarge(b *testing.B) {
	const jobs = 100
	client := luatomictest.StartServer(b, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000").Client()
	ctx := context.Background()
	d, err := sidekiq.New(client, nil)
	require.NoError(b, err)
	large := string(bytes.Repeat([]byte("x"), 1<<20-200))
	var longest time.Duration
	for b.Loop() {
		b.StopTimer()
		for i := range jobs {
			member := fmt.Sprintf(`{"queue":"b","n":%d,"args":["%s"]}`, i, large)
			require.NoError(b, client.ZAdd(ctx, "schedule", redis.Z{Score: float64(i), Member: member}).Err())
		}
		require.NoError(b, client.Do(ctx, "SLOWLOG", "RESET").Err())
		b.StartTimer()
		m, err := d.MoveDue(ctx, sidekiq.Schedule, 0)
		b.StopTimer()
		if err != nil || m.Moved != jobs {
			b.Fatal(m.Moved, err)
		}
		log, err := client.SlowLogGet(ctx, -1).Result()
		require.NoError(b, err)
		for _, entry := range log {
			longest = max(longest, entry.Duration)
		}
		require.NoError(b, client.Del(ctx, "queue:b").Err())
		b.StartTimer()
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest-script")
}

func built(n int, queue string) []sidekiq.Job {
	jobs := make([]sidekiq.Job, n)
	for i := range jobs {
		jobs[i] = sidekiq.Job{Class: "HardJob", Queue: queue,
			Args: json.RawMessage(fmt.Sprintf(`[%d,%q]`, i, bytes.Repeat([]byte("x"), 130)))}
	}
	return jobs
}

func finished(n int) []sidekiq.Job {
	jobs := make([]sidekiq.Job, n)
	for i := range jobs {
		head := fmt.Sprintf(`{"retry":true,"queue":"bench","class":"HardJob","args":[%d,"`, i)
		tail := fmt.Sprintf(`"],"jid":"%024x","created_at":1795230010.029114,"enqueued_at":1795230010.029114}`, i)
		jobs[i].Payload = []byte(head + string(bytes.Repeat([]byte("x"), 300-len(head)-len(tail))) + tail)
	}
	return jobs
}
