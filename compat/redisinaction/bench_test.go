package redisinaction_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction"
)

// Each benchmark runs the raw commands beside the scripts in the same run. The raw commands promise nothing.

func perTask(b *testing.B, n int) {
	b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "tasks/s")
}

func BenchmarkExecuteAll(b *testing.B) {
	const n = 1000
	args := []any{strings.Repeat("x", 240)} // an item of 300 bytes
	for _, delay := range []time.Duration{0, time.Hour} {
		b.Run(fmt.Sprint("ours/delay=", delay), func(b *testing.B) {
			c, r, prefix := own(b)
			tasks := make([]redisinaction.Task, n)
			for i := range tasks {
				tasks[i] = redisinaction.Task{Name: "name", Args: args, Delay: delay}
			}
			for b.Loop() {
				_, err := c.ExecuteAll(b.Context(), "q", tasks...)
				require.NoError(b, err)
				b.StopTimer()
				r.Unlink(b.Context(), prefix+"queue:q", prefix+"delayed:")
				b.StartTimer()
			}
			perTask(b, n)
		})
		b.Run(fmt.Sprint("raw/delay=", delay), func(b *testing.B) {
			_, r, prefix := own(b)
			for b.Loop() {
				values, zs := make([]any, n), make([]redis.Z, n)
				for i := range n {
					text, err := json.Marshal([]any{uuid.NewString(), "q", "name", args})
					require.NoError(b, err)
					values[i], zs[i] = text, redis.Z{Score: float64(time.Now().UnixMicro()) / 1e6, Member: text}
				}
				if delay == 0 {
					require.NoError(b, r.RPush(b.Context(), prefix+"queue:q", values...).Err())
				} else {
					require.NoError(b, r.ZAdd(b.Context(), prefix+"delayed:", zs...).Err())
				}
				b.StopTimer()
				r.Unlink(b.Context(), prefix+"queue:q", prefix+"delayed:")
				b.StartTimer()
			}
			perTask(b, n)
		})
	}
}

// Ours, and the commands of the book's poll_queue without its sleeps.
func BenchmarkPollQueue(b *testing.B) {
	const n = 1000
	fill := func(b *testing.B, r *redis.Client, prefix string) {
		b.StopTimer()
		zs := make([]redis.Z, n)
		for i := range zs {
			zs[i] = redis.Z{Score: float64(i),
				Member: fmt.Sprintf(`["%s", "q", "name", ["%s"]]`, uuid.NewString(), strings.Repeat("x", 240))}
		}
		r.Unlink(b.Context(), prefix+"queue:q")
		require.NoError(b, r.ZAdd(b.Context(), prefix+"delayed:", zs...).Err())
		b.StartTimer()
	}
	b.Run("ours", func(b *testing.B) {
		c, r, prefix := own(b)
		for b.Loop() {
			fill(b, r, prefix)
			out, err := c.PollQueue(b.Context())
			require.NoError(b, err)
			require.Equal(b, n, out.Moved)
		}
		perTask(b, n)
	})
	b.Run("book", func(b *testing.B) {
		_, r, prefix := own(b)
		for b.Loop() {
			fill(b, r, prefix)
			for range n {
				bookMove(b, r, prefix)
			}
		}
		perTask(b, n)
	})
}

func bookMove(b *testing.B, r *redis.Client, prefix string) {
	ctx := b.Context()
	head, err := r.ZRangeWithScores(ctx, prefix+"delayed:", 0, 0).Result()
	require.NoError(b, err)
	text := head[0].Member.(string)
	item, err := redisinaction.ParseItem([]byte(text))
	require.NoError(b, err)
	lock, id := prefix+"lock:"+item.ID, uuid.NewString()
	require.True(b, r.SetNX(ctx, lock, id, 0).Val())
	require.EqualValues(b, 1, r.ZRem(ctx, prefix+"delayed:", text).Val())
	require.NoError(b, r.RPush(ctx, prefix+"queue:"+item.Queue, text).Err())
	bookRelease(b, r, lock, id)
}

func bookRelease(b *testing.B, r *redis.Client, lock, id string) {
	require.NoError(b, r.Watch(b.Context(), func(tx *redis.Tx) error {
		if tx.Get(b.Context(), lock).Val() != id {
			return nil
		}
		_, err := tx.TxPipelined(b.Context(), func(p redis.Pipeliner) error { return p.Del(b.Context(), lock).Err() })
		return err
	}, lock))
}

func BenchmarkLock(b *testing.B) {
	b.Run("ours", func(b *testing.B) {
		c, _, _ := own(b)
		b.ReportAllocs()
		for b.Loop() {
			id, err := c.AcquireLock(b.Context(), "l", nil)
			require.NoError(b, err)
			require.NoError(b, c.ReleaseLock(b.Context(), "l", id))
		}
	})
	b.Run("book", func(b *testing.B) {
		_, r, prefix := own(b)
		b.ReportAllocs()
		for b.Loop() {
			id := uuid.NewString()
			require.True(b, r.SetNX(b.Context(), prefix+"lock:l", id, 0).Val())
			bookRelease(b, r, prefix+"lock:l", id)
		}
	})
	b.Run("ping", func(b *testing.B) {
		_, r, _ := own(b)
		for b.Loop() {
			require.NoError(b, r.Ping(b.Context()).Err())
		}
	})
}
