package web_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/web"
)

// A queue of Sidekiq whose key has another type is shown as that, and not left out.
func TestAQueueOfSidekiqThatIsNoListIsShown(t *testing.T) {
	t.Parallel()
	space := luatomictest.Namespace(t)
	s := newSite(t, web.Options{Sidekiq: &sidekiq.Options{Namespace: space}})
	require.NoError(t, s.client.SAdd(t.Context(), space+":queues", "bad").Err())
	require.NoError(t, s.client.Set(t.Context(), space+":queue:bad", "x", 0).Err())
	require.Regexp(t, `(?s)>bad</th>.*Its key is no list`, s.ok("/sidekiq"))
	var data struct {
		NoLists []string `json:"no_lists"`
	}
	s.read("/sidekiq.json", &data)
	require.Equal(t, []string{"bad"}, data.NoLists)
}
