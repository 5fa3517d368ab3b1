package sidekiq_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/luatomictest"
)

// One key of another type hides neither the other keys nor itself.
func TestAKeyOfAnotherTypeHidesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	require.NoError(t, f.client.SAdd(f.ctx, f.key("queues"), "a", "bad").Err())
	require.NoError(t, f.client.LPush(f.ctx, f.key("queue:a"), withJID("1", "")).Err())
	f.schedule(sidekiq.Dead, 1, withJID("2", ""))
	for _, key := range []string{"queue:bad", "retry", "processes", "luatomic:sidekiq:processes", "retry:quarantine"} {
		require.NoError(t, f.client.Set(f.ctx, f.key(key), "x", 0).Err())
		got, err := f.d.Inspect(f.ctx)
		require.NoError(t, err, key)
		require.Equal(t, 2, got.Sampled, key)
		require.Equal(t, []string{f.key(key)}, got.WrongType)
		if key == "queue:bad" {
			st, err := f.d.Stats(f.ctx)
			require.NoError(t, err)
			require.Equal(t, []sidekiq.QueueStats{{Name: "a", Size: 1}}, st.Queues)
			require.Equal(t, []string{"bad"}, st.NoLists)
		}
		require.NoError(t, f.client.Del(f.ctx, f.key(key)).Err())
	}
}

func TestInspectTellsTheVersionByTheBytes(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.StartServer(t).Client(), t.Context()
	d, err := sidekiq.New(c, &sidekiq.Options{Namespace: "ns"})
	require.NoError(t, err)
	empty, err := d.Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, sidekiq.Inspection{Fields: map[string]int{}}, empty)

	seconds := payload("default", "a", `,"bid":"b","encrypt":false`)
	millis := `{"class":"W","args":[],"queue":"low","jid":"b","created_at":1795230010029,` +
		`"wrapped":"X","cattr":{},"bid":"x","bid":"y"}`
	require.NoError(t, c.SAdd(ctx, "ns:queues", "default", "low").Err())
	require.NoError(t, c.SAdd(ctx, "other:queues", "default").Err())
	require.NoError(t, c.LPush(ctx, "ns:queue:default", slices.Repeat([]any{seconds}, 7)...).Err())
	require.NoError(t, c.LPush(ctx, "ns:queue:low", millis, "broken").Err())
	require.NoError(t, c.ZAdd(ctx, "ns:retry", redis.Z{Member: seconds}).Err())
	require.NoError(t, c.ZAdd(ctx, "ns:retry:quarantine", redis.Z{Member: "x"}).Err())
	require.NoError(t, c.SAdd(ctx, "ns:processes", "ruby", "go", "expired").Err())
	require.NoError(t, c.HSet(ctx, "ns:ruby", "info", `{"version":"7.3.2"}`).Err())
	require.NoError(t, c.HSet(ctx, "ns:go", "info", `{"version":"luatomic"}`).Err())
	require.NoError(t, c.ZAdd(ctx, "ns:luatomic:sidekiq:processes", redis.Z{Member: "dead", Score: 1},
		redis.Z{Member: "alive", Score: float64(time.Now().Add(time.Hour).UnixMilli())}).Err())
	got, err := d.Inspect(ctx)
	require.NoError(t, err)
	require.Equal(t, sidekiq.Inspection{
		Versions: []string{"7.3.2"}, Sampled: 8, Seconds: 6, Milliseconds: 1,
		Fields:  map[string]int{"bid": 7, "cattr": 1},
		Wrapped: 1, Broken: 1, Quarantined: 1, Namespaces: []string{"other"}, Processes: 3, Abandoned: 1,
	}, got)
}
