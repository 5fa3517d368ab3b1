package actionhero_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// An item that a process saved for Number.MAX_VALUE ms has an end that is no time. The process' EXPIRE failed, and its
// load reads the item.
func TestLoadReadsAnItemWhoseEndIsBeyondAllTimes(t *testing.T) {
	t.Parallel()
	ctx, client, ns := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	cache := newCache(client, ns, "me", nil)
	for _, end := range []string{"1.7976931348623157e+308", "1e+21", "9300000000000000000"} {
		for _, ttl := range []time.Duration{0, time.Hour} {
			text := `{"value":1,"expireTimestamp":` + end + `,"createdAt":1500000000000,"readAt":null}`
			require.NoError(t, client.Set(ctx, ns+":cache:k", text, ttl).Err())
			for range 2 {
				item, err := cache.Load(ctx, "k", nil)
				require.NoError(t, err, end)
				require.Equal(t, "1", string(item.Value))
				require.Greater(t, item.ExpireAt.Year(), 9999)
			}
			require.Contains(t, client.Get(ctx, ns+":cache:k").Val(), `"expireTimestamp":`+end+`,`)
		}
	}
}

// JSON.stringify leaves the line separators as they are; encoding/json escapes them.
func TestValuesAreWrittenAsJSONStringifyDoes(t *testing.T) {
	t.Parallel()
	ctx, client, ns := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	cache := newCache(client, ns, "me", nil)
	for _, c := range []struct {
		value any
		want  string
	}{
		{"\u2028\u2029", "\"\u2028\u2029\""},
		{`\u2028`, `"\\u2028"`},
		{[]string{"\\\u2028", "\u2027<&>\x7f\b\f\x1f"}, "[\"\\\\\u2028\",\"\u2027<&>\x7f\\b\\f\\u001f\"]"},
		{[]float64{1e20, 1e21, 1e-6, 1e-7, 0.1}, `[100000000000000000000,1e+21,0.000001,1e-7,0.1]`},
	} {
		require.NoError(t, cache.Save(ctx, "k", c.value, 0))
		item, err := cache.Load(ctx, "k", nil)
		require.NoError(t, err)
		require.Equal(t, c.want, string(item.Value))
	}
}
