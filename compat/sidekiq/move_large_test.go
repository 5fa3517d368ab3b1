package sidekiq_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
)

// Due reads little more than it returns, whatever the sizes: what it reads beyond is read again by the next step.
func TestDueReadsWhatItReturns(t *testing.T) {
	t.Parallel()
	const budget = 10_000
	for name, sizes := range map[string][]int{
		"small":              repeat(300, 20),
		"large":              repeat(60, budget+1),
		"a few for a step":   repeat(60, budget/3),
		"small, then large":  append(repeat(64, 20), repeat(64, budget)...),
		"large behind a few": append(repeat(25, budget), 60*budget),
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, sidekiq.Options{})
			total := 0
			for i, size := range sizes {
				f.schedule(sidekiq.Schedule, float64(i+1), fmt.Sprintf("%04d", i)+strings.Repeat("x", size))
				total += size + 4
			}
			var read int64
			got := 0
			for skip := 0; skip < len(sizes); {
				due, err := script.Due(f.ctx, f.client, script.DueParams{
					Set: f.key("schedule"), Skip: int64(skip), Max: 100, Bytes: budget,
				})
				require.NoError(t, err)
				require.NotEmpty(t, due.Members)
				n, err := lab.BytesRead(f.ctx, f.client, &script.DueScript, []string{f.key("schedule")}, skip,
					100, budget)
				require.NoError(t, err)
				read += n
				for _, m := range due.Members {
					got += len(m)
				}
				skip += len(due.Members)
				next, more := due.Next.Get()
				require.Equal(t, skip < len(sizes), more, "next is there where more are due: %s", next)
			}
			require.Equal(t, total, got)
			require.Less(t, read, int64(2*total+len(sizes)*100), "bytes that the scripts read, of %d", total)
		})
	}
}

func repeat(n, size int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = size
	}
	return out
}
