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
	}{{"untouched", finished(1000)}, {"stamped", built(1000, "bench")}, {"queues-2", append(built(500, "bench"), built(500, "bench2")...)}} {
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

// BenchmarkMoveDue moves 1000 due jobs of 300 bytes in one call, two round trips.
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
			due[i] = redis.Z{Score: float64(i), Member: bytes.Replace(job.Payload, []byte(`"queue":"bench"`), []byte(queue), 1)}
		}
		b.Run(fmt.Sprint("queues-", queues), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				require.NoError(b, client.ZAdd(ctx, name+":schedule", due...).Err())
				b.StartTimer()
				m, err := d.MoveDue(ctx, sidekiq.Schedule, 0)
				b.StopTimer()
				if err != nil || m.Moved != 1000 {
					b.Fatal(m.Moved, err)
				}
				for i := range queues {
					require.NoError(b, client.Del(ctx, fmt.Sprint(name, ":queue:b", i)).Err())
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

func built(n int, queue string) []sidekiq.Job {
	jobs := make([]sidekiq.Job, n)
	for i := range jobs {
		jobs[i] = sidekiq.Job{Class: "HardJob", Queue: queue, Args: json.RawMessage(fmt.Sprintf(`[%d,%q]`, i, bytes.Repeat([]byte("x"), 130)))}
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
