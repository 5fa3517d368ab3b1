package sidekiq_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// Large due jobs keep the server no longer than a few copies of one of them in Lua: a script reads one and a script
// moves one, and each takes a bounded multiple of a script that only gets as many bytes.
func TestLargeDueJobsKeepTheServerShortly(t *testing.T) {
	t.Parallel()
	const jobs = 15
	client := luatomictest.StartServer(t, "--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000").Client()
	ctx := t.Context()
	d, err := sidekiq.New(client, nil)
	require.NoError(t, err)
	large := strings.Repeat("x", 1<<20-200)
	empty := redis.NewScript("return 1")
	require.NoError(t, empty.Load(ctx, client).Err())
	for i := range jobs {
		member := fmt.Sprintf(`{"queue":"b","n":%d,"args":["%s"]}`, i, large)
		require.NoError(t, client.ZAdd(ctx, "schedule", redis.Z{Score: float64(i), Member: member}).Err())
	}
	_, err = d.MoveDue(ctx, sidekiq.Schedule, 1) // loads the scripts
	require.NoError(t, err)
	require.NoError(t, client.Do(ctx, "SLOWLOG", "RESET").Err())
	for range jobs - 1 { // in turn, so that other programs slow both down
		require.NoError(t, empty.EvalSha(ctx, client, nil, large).Err())
		m, err := d.MoveDue(ctx, sidekiq.Schedule, 1)
		require.NoError(t, err)
		require.Equal(t, 1, m.Moved)
	}
	took := make(map[string][]time.Duration)
	log, err := client.SlowLogGet(ctx, -1).Result()
	require.NoError(t, err)
	for _, entry := range log {
		if strings.HasPrefix(strings.ToLower(entry.Args[0]), "evalsha") {
			took[entry.Args[1]] = append(took[entry.Args[1]], entry.Duration)
		}
	}
	floor := slices.Min(took[empty.Hash()]) // other programs only add to a time
	due, move := lab.Digest(&script.DueScript), lab.Digest(&script.MoveScript)
	for _, s := range []string{due, move} {
		require.Len(t, took[s], jobs-1)
		// About 4 on a quiet machine; a script that reads or moves all jobs has more than 50.
		require.Less(t, slices.Min(took[s]), 25*floor)
	}
	t.Logf("an empty script %v, due %v, move %v", floor, slices.Min(took[due]), slices.Min(took[move]))
}
