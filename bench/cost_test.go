package bench_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// cost is what the server spent: CPU of all its threads, and commands run, those
// inside scripts included.
type cost struct {
	cpu      time.Duration
	commands int64
}

func (c cost) since(before cost) cost {
	return cost{c.cpu - before.cpu, c.commands - before.commands}
}

// reportCPU reports the server's CPU for each of n.
func reportCPU(b *testing.B, c cost, n int, of string) {
	b.ReportMetric(float64(c.cpu.Nanoseconds())/1000/float64(n), "server-us/"+of)
}

func spent(b *testing.B, c *redis.Client) cost {
	b.Helper()
	cpu := info(b, c, "cpu", "CPU")
	seconds := number(b, cpu["used_cpu_user"]) + number(b, cpu["used_cpu_sys"])
	out := cost{cpu: time.Duration(seconds * float64(time.Second))}
	for name, line := range info(b, c, "commandstats", "Commandstats") {
		if name != "cmdstat_info" {
			out.commands += int64(field(b, line, "calls"))
		}
	}
	return out
}

func info(b *testing.B, c *redis.Client, section, title string) map[string]string {
	b.Helper()
	sections, err := c.InfoMap(b.Context(), section).Result()
	require.NoError(b, err)
	return sections[title]
}

// field reads one number of a line like "calls=3,usec=7".
func field(b *testing.B, line, name string) float64 {
	b.Helper()
	for part := range strings.SplitSeq(line, ",") {
		if k, v, ok := strings.Cut(part, "="); ok && k == name {
			return number(b, v)
		}
	}
	b.Fatalf("no %s in %q", name, line)
	return 0
}

func number(b *testing.B, s string) float64 {
	b.Helper()
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	require.NoError(b, err)
	return f
}

// tripCounter is a hook that counts commands and pipelines.
type tripCounter struct{ n atomic.Int64 }

func (t *tripCounter) DialHook(next redis.DialHook) redis.DialHook {
	return next
}

func (t *tripCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmd)
	}
}

func (t *tripCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmds)
	}
}
