package web_test

import (
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/web"
)

// What cannot be read of a page is in the log under a number, and the page has that number beside it.
func TestAPartThatIsNotReadHasItsNumber(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	for _, name := range []string{"mail", "post"} {
		_, err := s.queue(name).Push(t.Context(), queue.Job{ID: "a"})
		require.NoError(t, err)
	}
	fleet := keys.NewFleet(s.prefix)
	for _, key := range []string{
		fleet.Counts(time.Now().UTC().Format(time.DateOnly)),
		s.prefix + "rpc:{a}:about", s.prefix + "rpc:{b}:about",
	} {
		require.NoError(t, s.client.Set(t.Context(), key, "text", time.Hour).Err())
	}
	for _, bus := range []string{"a", "b"} {
		node := redis.Z{Score: 1e15, Member: "n"}
		require.NoError(t, s.client.ZAdd(t.Context(), s.prefix+"rpc:{"+bus+"}:nodes", node).Err())
	}
	var mu sync.Mutex
	var numbers []string
	s.handler = web.Handler(s.client, &web.Options{Prefix: s.prefix, OnError: func(id string, _ error) {
		mu.Lock()
		defer mu.Unlock()
		numbers = append(numbers, id)
	}})
	for page, faults := range map[string]int{"/": 2, "/queue?name=mail": 1, "/rpc": 2} {
		numbers = nil
		r := s.get(page)
		require.Equal(t, http.StatusOK, r.code, r.body)
		require.Len(t, numbers, faults, page)
		for _, number := range numbers {
			require.Contains(t, r.body, "<code>"+number+"</code>", page)
		}
	}
}

// JSON has no year before 0 or after 9999, and a duration no more than 292 years. A job that is due then, or a foreign
// score, hides no list and ends no process.
func TestATimeThatJSONCannotHoldHidesNoList(t *testing.T) {
	t.Parallel()
	ctx, space := t.Context(), luatomictest.Namespace(t)
	s := newSite(t, web.Options{Sidekiq: &sidekiq.Options{Namespace: space}})
	late := time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC)
	_, err := s.queue("mail").Push(ctx, queue.Job{ID: "late", At: late, ExpiresAt: late.Add(time.Hour)})
	require.NoError(t, err)
	require.NoError(t, s.client.SAdd(ctx, space+":queues", "q").Err())
	early := redis.Z{Score: -9e10, Member: `{"class":"C","jid":"early","queue":"q","args":[]}`}
	require.NoError(t, s.client.ZAdd(ctx, space+":schedule", early).Err())
	const last = "9999-12-31T23:59:59Z"
	type row struct {
		At        string `json:"at"`
		ExpiresAt string `json:"expires_at"`
	}
	var list struct {
		Jobs []row `json:"jobs"`
	}
	var one row
	s.read("/queue.json?name=mail&state=scheduled", &list)
	require.Equal(t, []row{{At: last}}, list.Jobs)
	s.read("/job.json?name=mail&id=late", &one)
	require.Equal(t, row{last, last}, one)
	s.read("/sidekiq.json?set=schedule", &list)
	require.Equal(t, []row{{At: "0000-01-01T00:00:00Z"}}, list.Jobs)
	require.Equal(t, "-106751 days", web.Rounded(math.MinInt64))
	require.Contains(t, s.ok("/queue?name=mail&state=scheduled"), "in 106751 days")
	require.Contains(t, s.ok("/job?name=mail&id=late"), "in 106751 days")
	require.Contains(t, s.ok("/sidekiq?set=schedule"), "106751 days ago")
}
