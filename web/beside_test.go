package web_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/web"
)

// beside runs a function after each command of a client, as if another one had its turn then.
type beside func()

func (b beside) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b beside) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer b()
		return next(ctx, cmd)
	}
}

func (b beside) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer b()
		return next(ctx, cmds)
	}
}

// siteBeside is a page beside others that work: f runs after each command of the page, with its number.
func siteBeside(t *testing.T, f func(s *site, n int32)) *site {
	t.Helper()
	s := newSite(t, web.Options{})
	client := redis.NewClient(luatomictest.Client(t).Options())
	t.Cleanup(func() { _ = client.Close() })
	var commands atomic.Int32
	client.AddHook(beside(func() { f(s, commands.Add(1)) }))
	s.handler = web.Handler(client, &web.Options{Prefix: s.prefix, Write: true})
	return s
}

// numbered are n jobs like one, with numbers from one on.
func numbered(from, n int, like queue.Job) []queue.Job {
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i], jobs[i].ID = like, fmt.Sprintf("%s-%04d", cmp.Or(like.ID, "job"), from+i)
	}
	return jobs
}

// push adds n jobs like one.
func (s *site) push(q *queue.Queue, n int, like queue.Job) {
	s.t.Helper()
	for from := 0; from < n; from += 200 {
		_, err := q.Push(s.t.Context(), numbered(from, min(200, n-from), like)...)
		require.NoError(s.t, err)
	}
}

// ids are those of the jobs of a state. Nobody else works then.
func (s *site) ids(q *queue.Queue, state queue.State) (ids []string) {
	s.t.Helper()
	st := s.stats(q)
	most := map[queue.State]int{
		queue.Ready: st.Ready, queue.Scheduled: st.Scheduled, queue.Leased: st.Leased, queue.Dead: st.Dead,
	}[state]
	for at := 0; at < most; at += 200 {
		jobs, err := q.Peek(s.t.Context(), state, at, 200)
		require.NoError(s.t, err)
		for _, j := range jobs {
			ids = append(ids, j.ID)
		}
	}
	return ids
}

// changeAll changes all jobs of queue mail, and continues while some are left. It returns how many. The number suffices
// for those that come meanwhile too.
func (s *site) changeAll(form url.Values) (done int) {
	s.t.Helper()
	form.Set("confirm", "9000")
	for range 100 {
		var got changed
		s.post("/jobs.json?name=mail", form, &got)
		done += got.Done
		if got.Left == 0 {
			return done
		}
		form.Set("until", strconv.FormatInt(got.Until.UnixMilli(), 10))
	}
	require.Fail(s.t, "it does not end")
	return done
}

// A change of all ready jobs passes over none, while a consumer takes some.
func TestChangeOfAllReadyJobsBesideAConsumer(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"cancel", "bury"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			s := siteBeside(t, func(s *site, n int32) {
				if n%5 != 0 {
					return
				}
				_, err := s.queue("mail").Take(context.Background(), 50)
				require.NoError(t, err)
			})
			q := s.queue("mail")
			s.push(q, 1300, queue.Job{})
			done := s.changeAll(url.Values{"all": {verb}, "state": {"ready"}})
			require.Empty(t, s.ids(q, queue.Ready))
			require.Equal(t, 1300, done+len(s.ids(q, queue.Leased)), "each is changed or at the consumer")
		})
	}
}

// A change of all jobs of a kind goes on beside a job of another program whose id no call can name.
func TestChangeOfAllOfAKindBesideALongID(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q, long := s.queue("mail"), strings.Repeat("a", 2<<20)
	require.NoError(t, s.client.HSet(t.Context(), s.prefix+"{mail}:b", long, "body").Err())
	require.NoError(t, s.client.RPush(t.Context(), s.prefix+"{mail}:r", "1700000000000:"+long).Err())
	s.push(q, 3, queue.Job{Kind: "welcome"})
	var got changed
	s.post("/jobs.json?name=mail",
		url.Values{"all": {"cancel"}, "state": {"ready"}, "kind": {"welcome"}, "confirm": {"3"}}, &got)
	require.Equal(t, 3, got.Done)
}

// A change of all scheduled jobs passes over none, while a consumer takes those that are due, and others come that are
// due before the rest. Many are due at the same time.
func TestChangeOfAllScheduledJobsBesideAConsumer(t *testing.T) {
	t.Parallel()
	for verb, in := range map[string]string{"cancel": "", "bury": "", "reschedule": "0s"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			s := siteBeside(t, func(s *site, n int32) {
				if n%5 != 0 {
					return
				}
				_, err := s.queue("mail").Take(context.Background(), 50)
				require.NoError(t, err)
				_, err = s.queue("mail").Push(context.Background(), queue.Job{Delay: time.Minute})
				require.NoError(t, err)
			})
			q := s.queue("mail")
			hour := time.Now().Add(time.Hour)
			s.push(q, 100, queue.Job{ID: "due", At: time.Now().Add(time.Millisecond)})
			s.push(q, 1300, queue.Job{ID: "same", At: hour})
			s.push(q, 200, queue.Job{ID: "later", At: hour.Add(time.Hour)})
			s.changeAll(url.Values{"all": {verb}, "state": {"scheduled"}, "in": {in}})
			left, err := q.Peek(t.Context(), queue.Scheduled, 0, 200)
			require.NoError(t, err)
			for _, j := range left {
				require.True(t, j.At.Before(hour), "%s stays", j.ID)
			}
		})
	}
}

// A change of all dead jobs passes over none, while a consumer trims the dead set.
func TestChangeOfAllDeadJobsBesideATrim(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"requeue", "delete"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			s := siteBeside(t, func(s *site, n int32) {
				if n%5 != 0 {
					return
				}
				dead := s.stats(s.queue("mail")).Dead
				_, err := s.queue("mail").Trim(context.Background(), queue.DeadLimits{Jobs: max(dead-50, 1)})
				require.NoError(t, err)
			})
			q := s.queue("mail")
			for i := range 7 {
				s.bury(q, "boom", numbered(i*200, 200, queue.Job{})...)
			}
			s.changeAll(url.Values{"all": {verb}, "state": {"dead"}})
			require.Empty(t, s.ids(q, queue.Dead))
		})
	}
}

// A job that leaves between two commands of a change takes none of the number that was confirmed.
func TestChangeOfAllReachesItsNumberWhereAJobLeaves(t *testing.T) {
	t.Parallel()
	for when := range int32(8) {
		s := siteBeside(t, func(s *site, n int32) {
			if n == when {
				_, err := s.queue("mail").Cancel(context.Background(), "job-0000")
				require.NoError(t, err)
			}
		})
		q := s.queue("mail")
		s.push(q, 3, queue.Job{At: time.Now().Add(time.Hour)})
		var got changed
		s.post("/jobs.json?name=mail", url.Values{"all": {"bury"}, "state": {"scheduled"}, "confirm": {"2"}}, &got)
		require.Equal(t, 2, got.Done, "job-0000 leaves after command %d", when)
	}
}

// A request whose time ends first offers to continue, also where a job stays dead, as another one holds its unique
// name. The page says so, and the requests that follow do not try it again.
func TestARequestThatEndsEarlyOffersToContinue(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	web.ChangeInSteps(s.handler)
	q := s.queue("mail")
	s.bury(q, "boom", queue.Job{ID: "job-0000", Unique: "a"})
	s.bury(q, "boom", numbered(1, 250, queue.Job{})...)
	s.bury(q, "boom", numbered(251, 199, queue.Job{})...)
	_, err := q.Push(t.Context(), queue.Job{ID: "holder", Unique: "a"})
	require.NoError(t, err)
	form := url.Values{"all": {"requeue"}, "state": {"dead"}, "confirm": {"450"}}
	for i, left := range []int{250, 50} {
		page := s.do(http.MethodPost, "/jobs?name=mail", form)
		require.Equal(t, http.StatusOK, page.code, page.body)
		const stays = "Requeued: 199. Still dead: 1, the first &#34;job-0000&#34;"
		require.Equal(t, i == 0, strings.Contains(page.body, stays), page.body)
		require.Contains(t, page.body, fmt.Sprintf("Continue with %d", left))
		form = url.Values{}
		for _, m := range hiddenFields.FindAllStringSubmatch(page.body, -1) {
			form.Add(m[1], m[2])
		}
		require.Equal(t, strconv.Itoa(left), form.Get("confirm"))
	}
	last := s.do(http.MethodPost, "/jobs?name=mail", form)
	require.Equal(t, http.StatusOK, last.code)
	require.Contains(t, last.body, "Requeue: 449 of 449 jobs")
	require.Equal(t, []string{"job-0000"}, s.ids(q, queue.Dead))
}

// What is left is counted: jobs that others have taken meanwhile are not offered again.
func TestWhatIsLeftIsCounted(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	web.ChangeInSteps(s.handler)
	q := s.queue("mail")
	s.push(q, 600, queue.Job{At: time.Now().Add(time.Hour)})
	var got changed
	form := url.Values{"all": {"cancel"}, "state": {"scheduled"}, "confirm": {"5000"}}
	s.post("/jobs.json?name=mail", form, &got)
	require.Equal(t, []int{200, 400}, []int{got.Done, got.Left})
}

// A change of all jobs without a filter needs their ids: the bodies of a large queue stay on the server.
func TestAChangeOfAllReadsNoBodies(t *testing.T) {
	t.Parallel()
	for verb, state := range map[string]string{
		"cancel": "ready", "bury": "ready", "requeue": "dead", "delete": "dead", "reschedule": "scheduled",
	} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			s := newSiteOn(t, luatomictest.StartServer(t).Client(), web.Options{Write: true})
			q, job := s.queue("mail"), queue.Job{Body: make([]byte, 40<<10)}
			if state == "scheduled" {
				job.Delay = time.Hour
			}
			s.push(q, 20, job)
			if state == "dead" {
				_, err := q.BuryJobs(t.Context(), "boom", s.ids(q, queue.Ready)...)
				require.NoError(t, err)
			}
			before := s.sent()
			var got changed
			s.post("/jobs.json?name=mail", url.Values{"all": {verb}, "state": {state}, "confirm": {"20"}}, &got)
			require.Equal(t, 20, got.Done)
			require.Less(t, s.sent()-before, 200<<10, "bytes that the server sent, of 800 KB of bodies")
		})
	}
}

// sent is how many bytes the server has sent.
func (s *site) sent() int {
	s.t.Helper()
	_, rest, found := strings.Cut(s.client.Info(s.t.Context(), "stats").Val(), "total_net_output_bytes:")
	require.True(s.t, found)
	n, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]))
	require.NoError(s.t, err)
	return n
}

// A change of all that match reaches jobs that are behind many others, of which one request looks at a few only.
// The number that match is not known before, so the page offers the change without it, and goes on behind what it has
// looked at, also among jobs of one time.
func TestAChangeOfAllThatMatchGoesOnUntilTheEnd(t *testing.T) {
	t.Parallel()
	for name, verb := range map[string]string{"dead": "requeue", "scheduled": "cancel"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, web.Options{Write: true})
			web.ChangeInSteps(s.handler)
			q, ctx := s.queue("mail"), t.Context()
			s.push(q, 900, queue.Job{Kind: "other"})
			_, err := q.Push(ctx, queue.Job{ID: "z1", Kind: "mine"}, queue.Job{ID: "a1", Kind: "mine"},
				queue.Job{ID: "z2", Kind: "mine"})
			require.NoError(t, err)
			_, err = q.BuryJobs(ctx, "boom", s.ids(q, queue.Ready)...)
			require.NoError(t, err)
			at, key := float64(s.stats(q).Now.UnixMilli()), s.prefix+"{mail}:"
			to := key + map[string]string{"dead": "d", "scheduled": "s"}[name]
			for _, id := range s.ids(q, queue.Dead) {
				require.NoError(t, s.client.ZRem(ctx, key+"d", id).Err())
				require.NoError(t, s.client.ZAdd(ctx, to, redis.Z{Score: at, Member: id}).Err())
			}
			form, requests := url.Values{"all": {verb}, "state": {name}, "kind": {"mine"}}, 0
			for ; form.Get("all") != "" && requests < 10; requests++ {
				page := s.do(http.MethodPost, "/jobs?name=mail", form)
				require.Equal(t, http.StatusOK, page.code, page.body)
				if requests == 0 {
					require.Contains(t, page.body, "1 of the 200 that were checked match; 903 are "+name)
				}
				form = url.Values{}
				for _, m := range hiddenFields.FindAllStringSubmatch(page.body, -1) {
					form.Add(m[1], m[2])
				}
				if form.Get("all") == "" {
					require.Contains(t, page.body, "3 jobs</h1>")
				}
			}
			require.Equal(t, 6, requests, "a question, and five requests for 903 jobs")
			found, err := q.Find(ctx, "z1", "z2", "a1")
			require.NoError(t, err)
			for _, f := range found {
				require.NotEqual(t, name, string(f.State), f.ID)
			}
		})
	}
}
