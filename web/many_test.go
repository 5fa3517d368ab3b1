package web_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/web"
)

// fill makes many dead jobs at once; one push and one take a job would be the time of the test.
var fill = redis.NewScript(`
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  redis.call('ZADD', KEYS[1], tonumber(ARGV[3]) + i, 'job-' .. i)
  redis.call('HSET', KEYS[2], 'job-' .. i, '{"to":"somebody@example.com"}')
  redis.call('HSET', KEYS[3], 'job-' .. i, 25, 'job-' .. i .. '\n', 'smtp: 421 try again later')
end
return 1`)

// fillStep is small, so that the tests beside this one are served in between.
const fillStep = 2000

// The pages of many dead jobs take no longer than those of few, at the end of the list too, and with a filter that
// matches nothing. With LUATOMIC_DRILL they are a million.
func TestPagesOfManyDeadJobs(t *testing.T) {
	t.Parallel()
	jobs := 200_000
	if os.Getenv("LUATOMIC_DRILL") != "" {
		jobs = 1_000_000
	}
	s := newSite(t, web.Options{Write: true})
	s.bury(s.queue("mail"), "x", queue.Job{ID: "first"})
	key := s.prefix + "{mail}:"
	begin := strconv.FormatInt(time.Now().Add(-time.Hour).UnixMilli(), 10)
	for from := 1; from < jobs; from += fillStep {
		require.NoError(t, fill.Run(t.Context(), s.client, []string{key + "d", key + "b", key + "n"}, from,
			min(from+fillStep-1, jobs-1), begin).Err())
	}
	var page jobsPage
	for name, target := range map[string]string{
		"first page": "/queue?name=mail&state=dead", "one job": "/job?name=mail&id=job-77", "overview": "/",
		"last page": "/queue?name=mail&state=dead&cursor=" + s.cursorNear(t, "mail", 40),
	} {
		best := time.Hour
		for n := 0; n < 10 || n < 300 && best >= 50*time.Millisecond; n++ {
			began := time.Now()
			s.ok(target)
			best = min(best, time.Since(began))
		}
		t.Logf("%d dead jobs, %s: %v", jobs, name, best)
		require.Less(t, best, 50*time.Millisecond, name)
	}
	began := time.Now()
	s.read("/queue.json?name=mail&text=nothing", &page)
	require.Empty(t, page.Jobs)
	require.LessOrEqual(t, page.Checked, web.ScanJobs)
	require.NotEmpty(t, page.Next, "it offers to check more")
	require.Less(t, time.Since(began), web.Timeout)
	s.all(t, jobs)
}

// cursorNear is the cursor of a place that many jobs are before. It is made as the page makes it: to walk there takes
// too long.
func (s *site) cursorNear(t *testing.T, name string, rank int) string {
	t.Helper()
	return web.JobsCursor(s.handler, "", name, "dead", rank)
}

// all requeues the jobs in as many requests as it takes, each within its time.
func (s *site) all(t *testing.T, jobs int) {
	t.Helper()
	form := url.Values{"all": {"requeue"}, "state": {"dead"}, "confirm": {strconv.Itoa(jobs)}}
	for left, requests := jobs, 0; left > 0; requests++ {
		require.Less(t, requests, 100)
		began := time.Now()
		r := s.do(http.MethodPost, "/jobs.json?name=mail", form)
		require.Equal(t, http.StatusOK, r.code, r.body)
		require.Less(t, time.Since(began), web.Timeout)
		var got changed
		require.NoError(t, json.Unmarshal([]byte(r.body), &got))
		require.Equal(t, left, got.Count)
		require.Equal(t, left-got.Done, got.Left)
		left = got.Left
		form.Set("confirm", strconv.Itoa(left))
	}
	st := s.stats(s.queue("mail"))
	require.Equal(t, []int{jobs, 0}, []int{st.Ready, st.Dead})
}

// A page of a list that has become shorter meanwhile leads to the jobs that are left.
func TestPageBehindTheEndOfAList(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	q := s.queue("mail")
	_, err := q.Push(t.Context(), queue.Job{ID: "left"})
	require.NoError(t, err)
	dead := s.queue("dead")
	s.bury(dead, "x", queue.Job{ID: "left"})
	var page jobsPage
	s.read("/queue.json?name=dead&state=dead&cursor="+s.cursorNear(t, "dead", 500), &page)
	require.Len(t, page.Jobs, 1)
	require.Empty(t, page.Next)
	s.read("/queue.json?name=mail&state=ready&cursor="+web.JobsCursor(s.handler, "", "mail", "ready", 500), &page)
	require.Empty(t, page.Jobs)
	s.read("/queue.json?name=mail&state=ready&cursor="+page.Before, &page)
	require.Len(t, page.Jobs, 1)
}

// Cancelled and buried jobs keep their entries in the list of ready jobs until a take. A page passes over them: it does
// not say that no job is ready, and it offers a change of all.
func TestAPagePassesOverCancelledJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q := s.queue("mail")
	ids := make([]string, 300)
	jobs := make([]queue.Job, len(ids), len(ids)+1)
	for i := range ids {
		ids[i] = "off-" + strconv.Itoa(i)
		jobs[i] = queue.Job{ID: ids[i]}
	}
	_, err := q.Push(t.Context(), append(jobs, queue.Job{ID: "on"})...)
	require.NoError(t, err)
	_, err = q.Cancel(t.Context(), ids...)
	require.NoError(t, err)
	text := s.ok("/queue?name=mail&state=ready")
	require.Contains(t, text, "id=on")
	require.Contains(t, text, "Cancel all")
	require.Contains(t, text, "can include jobs that were cancelled or buried")

	_, err = q.Cancel(t.Context(), "on")
	require.NoError(t, err)
	text = s.ok("/queue?name=mail&state=ready")
	require.Contains(t, text, "No job is ready.")
	require.Contains(t, s.ok("/queue?name=mail&state=ready&text=on"), "0 of the 301 jobs that were checked match")
	require.Contains(t, text, "can include jobs that were cancelled or buried")

	jobs = jobs[:0]
	for i := range web.ScanJobs {
		jobs = append(jobs, queue.Job{ID: "more-" + strconv.Itoa(i)})
	}
	for some := range slices.Chunk(jobs, 1000) {
		_, err = q.Push(t.Context(), some...)
		require.NoError(t, err)
		ids = ids[:0]
		for _, j := range some {
			ids = append(ids, j.ID)
		}
		_, err = q.Cancel(t.Context(), ids...)
		require.NoError(t, err)
	}
	text = s.ok("/queue?name=mail&state=ready")
	require.NotContains(t, text, "No job is ready.")
	require.Contains(t, text, "Check more")
}

// A change of all ready jobs goes on where the request before ended, and spends no time on what that has changed: the
// entries of those jobs are in the list until a take.
func TestAChangeOfAllReadyJobsGoesOn(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"cancel", "bury"} {
		for _, text := range []string{"", "job-"} {
			s := newSite(t, web.Options{Write: true})
			web.ChangeInSteps(s.handler)
			q := s.queue("mail")
			s.push(q, 1300, queue.Job{})
			form := url.Values{"all": {verb}, "state": {"ready"}, "confirm": {"1300"}, "text": {text}}
			done := 0 // requests
			for range 20 {
				page := s.do(http.MethodPost, "/jobs?name=mail", form)
				require.Equal(t, http.StatusOK, page.code, page.body)
				form = url.Values{"all": {verb}}
				for _, m := range hiddenFields.FindAllStringSubmatch(page.body, -1) {
					form.Add(m[1], m[2])
				}
				if done == 0 {
					s.push(q, 3, queue.Job{ID: "late"})
				}
				if done++; form.Get("confirm") == "" {
					break
				}
			}
			require.Less(t, done, 20, verb)
			for from := 0; from < 1300; from += 100 {
				var ids []string
				for _, j := range numbered(from, 100, queue.Job{}) {
					ids = append(ids, j.ID)
				}
				found, err := q.Find(t.Context(), ids...)
				require.NoError(t, err)
				for _, f := range found {
					require.NotEqual(t, queue.Ready, f.State, "%s of %s", verb, f.ID)
				}
			}
		}
	}
}
