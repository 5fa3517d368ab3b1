package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/web"
)

// lapse takes a job and ends its lease, as if its worker had died long ago.
func (s *site) lapse(q *queue.Queue, id string) {
	s.t.Helper()
	_, err := q.Push(s.t.Context(), queue.Job{ID: id})
	require.NoError(s.t, err)
	taken, err := q.Take(s.t.Context(), 1)
	require.NoError(s.t, err)
	require.Len(s.t, taken.Deliveries, 1)
	require.NoError(s.t, s.client.ZAdd(s.t.Context(), s.prefix+"{"+q.Name()+"}:l",
		redis.Z{Score: lab.Past, Member: id}).Err())
}

// The page says which leases have ended and that nobody consumes, and takes the jobs back.
func TestThePageTakesLapsedJobsBack(t *testing.T) {
	t.Parallel()
	var log []web.Action
	s := newSite(t, web.Options{Write: true, OnAction: func(_ *http.Request, a web.Action) { log = append(log, a) }})
	q := s.queue("mail")
	s.lapse(q, "held")
	require.Contains(t, s.ok("/"), ">1 lapsed<")
	body := s.ok("/queue?name=mail")
	require.Contains(t, body, "No process consumes this queue")
	require.Contains(t, body, `value="reclaim"`)
	r := s.do(http.MethodPost, "/queue/settings?name=mail", url.Values{"verb": {"reclaim"}})
	require.Equal(t, http.StatusOK, r.code, r.body)
	require.Contains(t, r.body, "has 1 job back")
	st := s.stats(q)
	require.Equal(t, []int{1, 0}, []int{st.Ready, st.Lapsed})
	require.Equal(t, 1, log[0].Done)
	require.NotContains(t, s.ok("/queue?name=mail"), `value="reclaim"`)
	require.Contains(t, s.ok("/"), ">no consumer<")
}

// The page takes a job from its worker under the fence that it has shown, and asks anew where that has moved.
func TestThePageReleasesAJob(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q := s.queue("mail")
	_, err := q.Push(t.Context(), queue.Job{ID: "held"})
	require.NoError(t, err)
	taken, err := q.Take(t.Context(), 1)
	require.NoError(t, err)
	require.Contains(t, s.ok("/job?name=mail&id=held"), `value="release"`)
	var shown struct{ Fence int64 }
	s.read("/job.json?name=mail&id=held", &shown)
	require.NoError(t, taken.Deliveries[0].Extend(t.Context(), time.Hour))

	form := url.Values{"verb": {"release"}, "state": {"leased"}, "id": {"held"}, "fence": {fmt.Sprint(shown.Fence)}}
	var got struct {
		Confirm bool
		Fence   int64
		Done    int
	}
	s.post("/jobs.json?name=mail", form, &got)
	require.True(t, got.Confirm)
	require.NotEqual(t, shown.Fence, got.Fence)
	require.Equal(t, 1, s.stats(q).Leased, "nothing has changed")
	require.Contains(t, s.do(http.MethodPost, "/jobs?name=mail", form).body,
		fmt.Sprintf(`name="fence" value="%d"`, got.Fence))

	form.Set("fence", fmt.Sprint(got.Fence))
	s.post("/jobs.json?name=mail", form, &got)
	require.Equal(t, 1, got.Done)
	st := s.stats(q)
	require.Equal(t, []int{1, 0}, []int{st.Ready, st.Leased})
	require.ErrorIs(t, taken.Deliveries[0].Ack(t.Context()), queue.ErrLeaseLost)
	require.Equal(t, http.StatusConflict, s.do(http.MethodPost, "/jobs?name=mail", form).code, "it is ready now")
	form.Del("fence")
	require.Equal(t, http.StatusBadRequest, s.do(http.MethodPost, "/jobs?name=mail", form).code)
}

// The overview names a server that came back empty.
func TestTheOverviewNamesALossOfData(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	now, err := s.client.Time(t.Context()).Result()
	require.NoError(t, err)
	require.NotContains(t, s.ok("/"), "has lost data")
	about := fmt.Sprint(now.UnixMicro(), " ", now.UnixMilli())
	require.NoError(t, s.client.HSet(t.Context(), keys.NewFleet(s.prefix).About, "", about).Err())
	require.Contains(t, s.ok("/"), "The server has lost data")
	require.Contains(t, s.ok("/index.json"), `"lost_data"`)
}

// The overview names a server that was restarted with its data: the list of processes is older than the server.
func TestTheOverviewNamesARestart(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	require.NotContains(t, s.ok("/"), "was restarted")
	about := keys.NewFleet(s.prefix).About
	require.NoError(t, s.client.HSet(t.Context(), about, "", fmt.Sprint(time.Now().UnixMicro(), " 0")).Err())
	require.NotContains(t, s.ok("/"), "was restarted", "the list is younger")
	require.NoError(t, s.client.HSet(t.Context(), about, "", "1000000 0").Err())
	require.Contains(t, s.ok("/"), "The server was restarted")
	require.Contains(t, s.ok("/index.json"), `"restarted"`)
}
