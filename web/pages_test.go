package web_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
	"github.com/luatomic/luatomic/web"
)

func TestOverviewListsQueuesWithTheirCounts(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	require.Contains(t, s.ok("/"), "No process has pushed")
	mail := s.queue("mail & more")
	s.bury(mail, "smtp down", queue.Job{ID: "a"})
	_, err := mail.Push(t.Context(), queue.Job{ID: "b"}, queue.Job{ID: "c", Delay: time.Hour})
	require.NoError(t, err)
	require.NoError(t, mail.Pause(t.Context()))

	page := s.ok("/")
	require.Contains(t, page, `/queue?name=mail%20%26%20more&amp;tag=`)
	require.Contains(t, page, "mail &amp; more")
	require.Contains(t, page, "paused")
	var data struct {
		Total  int
		Queues []struct {
			Queue                          string
			Ready, Scheduled, Leased, Dead int
			Paused                         bool
			OldestMS                       *int64 `json:"oldest_ms"`
			Days                           []queue.DayCounts
		}
	}
	s.read("/index.json", &data)
	require.Equal(t, 1, data.Total)
	got := data.Queues[0]
	require.Equal(t, []int{1, 1, 0, 1}, []int{got.Ready, got.Scheduled, got.Leased, got.Dead})
	require.True(t, got.Paused)
	require.NotNil(t, got.OldestMS)
	require.Len(t, got.Days, 14)
}

type jobsPage struct {
	State, Next, Before string
	Total, Checked      int
	Jobs                []struct {
		ID, Kind, Reason string
		Failures, Bytes  int
		Headers          map[string]string
	}
}

func (p jobsPage) ids() (ids []string) {
	for _, j := range p.Jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// Each state has its tab; dead jobs come first where there are any, the latest at the top.
func TestQueueShowsTheJobsOfEachState(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	q := s.queue("mail")
	s.bury(q, "first", queue.Job{ID: "a", Kind: "welcome", Body: []byte("12345")})
	s.bury(q, "second", queue.Job{ID: "b", Headers: map[string]string{"trace": "t-1"}})
	_, err := q.Push(t.Context(), queue.Job{ID: "c"}, queue.Job{ID: "d"}, queue.Job{ID: "e", Delay: time.Hour})
	require.NoError(t, err)
	_, err = q.Take(t.Context(), 1)
	require.NoError(t, err)

	var page jobsPage
	s.read("/queue.json?name=mail", &page)
	require.Equal(t, "dead", page.State)
	require.Equal(t, []string{"b", "a"}, page.ids())
	require.Equal(t, "first", page.Jobs[1].Reason)
	require.Equal(t, 5, page.Jobs[1].Bytes)
	require.Equal(t, "t-1", page.Jobs[0].Headers["trace"])
	for state, id := range map[string]string{"ready": "d", "scheduled": "e", "leased": "c"} {
		s.read("/queue.json?name=mail&state="+state, &page)
		require.Equal(t, []string{id}, page.ids(), state)
		require.Contains(t, s.ok("/queue?name=mail&state="+state), `id=`+id)
	}
	shown := s.ok("/queue?name=mail")
	require.Contains(t, shown, "trace: t-1")
	require.NotContains(t, shown, "12345", "a body is hidden")
}

// The pages of a list are its jobs, each once, also while jobs die and come meanwhile.
func TestPagesShowEachJobOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	q := s.queue("mail")
	var dead, ready []queue.Job
	for i := range 120 {
		dead = append(dead, queue.Job{ID: fmt.Sprintf("d%03d", i)})
		ready = append(ready, queue.Job{ID: fmt.Sprintf("r%03d", i)})
	}
	s.bury(q, "x", dead...)
	_, err := q.Push(t.Context(), ready...)
	require.NoError(t, err)
	for _, state := range []string{"dead", "ready"} {
		seen, cursor, pages := map[string]int{}, "", 0
		for cursor != "" || pages == 0 {
			var page jobsPage
			s.read("/queue.json?name=mail&state="+state+"&cursor="+cursor, &page)
			if pages++; pages == 1 {
				require.NotEmpty(t, page.Jobs)
				require.LessOrEqual(t, len(page.Jobs), web.PageSize)
				if state == "dead" {
					_, err := q.Push(t.Context(), queue.Job{ID: "behind"})
					require.NoError(t, err)
				}
			} else {
				require.NotEmpty(t, page.Before)
			}
			for _, id := range page.ids() {
				seen[id]++
			}
			cursor = page.Next
		}
		require.GreaterOrEqual(t, pages, 3, "a page whose time is over has fewer jobs")
		for i := range 120 {
			require.Equal(t, 1, seen[fmt.Sprintf("%c%03d", state[0], i)], "%s %d", state, i)
		}
	}
}

func TestJobsAreFilteredByKindAndText(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Redact: func(_, kind string, body []byte) []byte {
		if kind == "secret" {
			return []byte("(hidden)")
		}
		return body
	}})
	q := s.queue("mail")
	s.bury(q, "smtp down", queue.Job{ID: "a", Kind: "welcome", Body: []byte("to ann")},
		queue.Job{ID: "b", Kind: "secret", Body: []byte("to bob")})
	s.bury(q, "no such user", queue.Job{ID: "c", Headers: map[string]string{"x": "ann"}})
	for filter, want := range map[string][]string{
		"kind=welcome": {"a"}, "text=smtp": {"b", "a"}, "text=ann": {"c", "a"}, "text=bob": nil, "text=(hidden)": {"b"},
		"kind=welcome&text=user": nil, "text=c": {"c"},
	} {
		var page jobsPage
		s.read("/queue.json?name=mail&"+filter, &page)
		require.ElementsMatch(t, want, page.ids(), filter)
		require.Equal(t, 3, page.Checked)
	}
	require.Contains(t, s.ok("/queue?name=mail&text=nothing"), "None of the 3 jobs")
}

// A body is shown where it is asked for, through the redactor, and is never inline otherwise.
func TestJobShowsItsBodyWhenAsked(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Redact: func(_, _ string, body []byte) []byte {
		return []byte(strings.ReplaceAll(string(body), "4711", "****"))
	}})
	q := s.queue("mail")
	s.bury(q, "boom", queue.Job{ID: "a", Body: []byte("card 4711"), MaxFailures: 3, Timeout: time.Second, Kind: "pay"},
		queue.Job{ID: "bin", Body: []byte{0xff, 0, 'x'}})
	require.NotContains(t, s.ok("/job?name=mail&id=a"), "card")
	page := s.ok("/job?name=mail&id=a&body=text")
	require.Contains(t, page, "card ****")
	require.NotContains(t, page, "4711")
	require.Contains(t, page, "boom")
	require.Contains(t, s.ok("/job?name=mail&id=bin&body=text"), `\xff`)
	file := s.get("/job?name=mail&id=bin&body=file")
	require.Equal(t, "\xff\x00x", file.body)
	require.Equal(t, "application/octet-stream", file.header.Get("Content-Type"))
	require.Equal(t, "attachment; filename=body", file.header.Get("Content-Disposition"))
	require.Equal(t, "nosniff", file.header.Get("X-Content-Type-Options"))
	var job struct {
		State       string
		MaxFailures int   `json:"max_failures"`
		TimeoutMS   int64 `json:"timeout_ms"`
		Body        []byte
	}
	s.read("/job.json?name=mail&id=a&body=text", &job)
	require.Equal(t, "dead", job.State)
	require.Equal(t, 3, job.MaxFailures)
	require.EqualValues(t, 1000, job.TimeoutMS)
	require.Equal(t, "card ****", string(job.Body))
}

func TestRunningShowsWhoHoldsWhat(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	require.Contains(t, s.ok("/running"), "No process consumes")
	q := s.queue("mail")
	_, err := q.Push(t.Context(), queue.Job{ID: "long", Kind: "report"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = q.Consume(ctx, &queue.ConsumeOptions{Grace: time.Millisecond},
			func(ctx context.Context, _ *queue.Delivery) error {
				<-ctx.Done()
				return ctx.Err()
			})
	}()
	var page string
	luatomictest.Eventually(t, 10*time.Second, "the consumer reports its job", func() bool {
		page = s.ok("/running")
		return strings.Contains(page, "id=long")
	})
	require.Contains(t, page, "report")
	_, err = q.Cancel(t.Context(), "long")
	require.NoError(t, err)
	luatomictest.Eventually(t, 20*time.Second, "the consumer reports that it has none", func() bool {
		return strings.Contains(s.ok("/running.json"), `"holding":[]`)
	})
	stop()
	<-ended
}

func TestLocksShowHoldersWaitersAndNoToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	locker := lock.New(s.client, &lock.Options{Prefix: s.prefix, Note: "host-7 <b>", TTL: time.Minute})
	defer locker.Close()
	lease, err := locker.Acquire(t.Context(), "nightly")
	require.NoError(t, err)
	permit, err := locker.Semaphore("api", 3).Acquire(t.Context(), 2)
	require.NoError(t, err)
	reader, err := locker.RW("table").RAcquire(t.Context())
	require.NoError(t, err)
	for kind, want := range map[string]struct{ name, says, token string }{
		"lock": {"nightly", "held", lease.Token()}, "semaphore": {"api", "2 of 3", permit.Token()},
		"rw": {"table", "1 reader", reader.Token()},
	} {
		for _, target := range []string{"/locks?kind=" + kind, "/locks?kind=" + kind + "&name=" + want.name} {
			var page, json string
			luatomictest.Eventually(t, 20*time.Second, "the search for "+want.name+" ends in time", func() bool {
				page, json = s.ok(target), s.ok(strings.Replace(target, "/locks", "/locks.json", 1))
				return strings.Contains(page, want.name) && strings.Contains(json, want.name)
			})
			require.Contains(t, page, want.says, target)
			require.Contains(t, page, "host-7 &lt;b&gt;", target)
			require.NotContains(t, page, want.token, target)
			require.NotContains(t, json, want.token, target)
		}
	}
	require.NotContains(t, s.ok("/locks?kind=lock&name=nobody"), "held</span>")
}

func TestCallsShowNodesAndMethods(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	require.Contains(t, s.ok("/rpc"), "No bus")
	bus, err := rpc.New(s.client, "orders", &rpc.Options{Prefix: s.prefix, Node: "web-1", Lease: 9 * time.Second})
	require.NoError(t, err)
	double := rpc.NewMethod[int, int]("double")
	require.NoError(t, double.Serve(bus, func(_ context.Context, n int) (int, error) { return 2 * n, nil },
		&rpc.ServeOptions{Description: "twice <it>", Version: "v7"}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- bus.Run(ctx) }()
	require.NoError(t, bus.Ready(t.Context()))
	_, err = double.Call(t.Context(), bus, 21, nil)
	require.NoError(t, err)
	var data struct {
		Buses []struct {
			Bus     string
			Nodes   []struct{ Node string }
			Methods []struct {
				Method   string
				Handled  int
				Versions []string
			}
		}
	}
	luatomictest.Eventually(t, 20*time.Second, "the node reports its call", func() bool {
		s.read("/rpc.json", &data)
		return len(data.Buses) == 1 && len(data.Buses[0].Methods) == 1 && data.Buses[0].Methods[0].Handled == 1
	})
	require.Equal(t, "orders", data.Buses[0].Bus)
	require.Equal(t, []string{"v7"}, data.Buses[0].Methods[0].Versions)
	require.True(t, strings.HasPrefix(data.Buses[0].Nodes[0].Node, "web-1"))
	require.Contains(t, s.ok("/rpc?name=orders"), "twice &lt;it&gt;")
	stop()
	<-ended
}

func TestServerShowsItsChecks(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	require.Contains(t, s.ok("/server"), "eviction")
	var data struct {
		Prefix string
		Checks []struct{ Check, Verdict string }
	}
	s.read("/server.json", &data)
	require.Equal(t, s.prefix, data.Prefix)
	require.NotEmpty(t, data.Checks)
}

// The assets come from the handler, and each answer forbids anything else.
func TestEveryAnswerIsItsOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	for _, target := range []string{"/", "/style.css", "/page.js", "/icon.svg", "/nothing", "/index.json"} {
		r := s.get(target)
		policy := r.header.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'", target)
		require.Contains(t, policy, "frame-ancestors 'none'", target)
		require.Equal(t, "nosniff", r.header.Get("X-Content-Type-Options"), target)
		require.Equal(t, "no-store", r.header.Get("Cache-Control"), target)
		own := strings.ReplaceAll(r.body, `xmlns="http://www.w3.org/2000/svg"`, "")
		require.NotContains(t, own, "://", "%s names no other host", target)
	}
	require.Equal(t, http.StatusOK, s.get("/page.js").code)
	require.Equal(t, http.StatusNotFound, s.get("/layout.html").code, "templates are no files")
}

// Under a path of its own, all links begin with it.
func TestHandlerUnderAPath(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Path: "/admin/lua/"})
	s.bury(s.queue("mail"), "x", queue.Job{ID: "a"})
	page := s.ok("/admin/lua/")
	require.Contains(t, page, `href="/admin/lua/queue?name=mail`)
	require.NotContains(t, page, `="/queue`)
	require.Contains(t, s.ok("/admin/lua/queue?name=mail"), "/admin/lua/job?")
	require.Contains(t, s.ok("/admin/lua"), "mail")
	stripped := s.get("/queue?name=mail")
	require.Equal(t, http.StatusNotFound, stripped.code)
	require.Contains(t, stripped.body, "Options.Path", "a proxy or a mux has removed the path")
	require.Equal(t, http.StatusOK, s.get("/admin/lua/style.css").code)
	s.handler = web.Handler(s.client, &web.Options{Path: "admin/lua"})
	require.Contains(t, s.ok("/admin/lua/"), `href="/admin/lua/style.css"`)
}

// JSON is also what a client asks for by its Accept header.
func TestAcceptOfJSON(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	r := s.get("/server", func(r *http.Request) { r.Header.Set("Accept", "application/json") })
	require.Equal(t, "application/json; charset=utf-8", r.header.Get("Content-Type"))
	r = s.get("/queue.json?name=none")
	require.Equal(t, http.StatusNotFound, r.code)
	require.Contains(t, r.body, `"error":"There is no queue`)
}

// Sidekiq's queues and sets are shown where the server has them, without the arguments of a job.
func TestSidekiqIsShownWhereItIs(t *testing.T) {
	t.Parallel()
	space := luatomictest.Namespace(t)
	s := newSite(t, web.Options{Sidekiq: &sidekiq.Options{Namespace: space}})
	require.NotContains(t, s.ok("/"), `href="/sidekiq"`)
	ruby, err := sidekiq.New(s.client, &sidekiq.Options{Namespace: space})
	require.NoError(t, err)
	_, err = ruby.Push(t.Context(), sidekiq.Job{Class: "MailJob", Queue: "mailers", JID: "now"})
	require.NoError(t, err)
	payload :=
		`{"class":"MailJob<b>","queue":"mailers","args":["secret"],"jid":"j1","retry_count":3,"error_message":"boom"}`
	for i := range 60 {
		require.NoError(t, s.client.ZAdd(t.Context(), space+":retry",
			redis.Z{Score: float64(1900000000 + i), Member: strings.Replace(payload, "j1", fmt.Sprint("j", i), 1)}).
			Err())
	}
	require.Contains(t, s.ok("/"), `href="/sidekiq"`)
	require.Contains(t, s.ok("/sidekiq.json?set=dead"), `"jobs":[]`)
	page := s.ok("/sidekiq")
	require.Contains(t, page, "mailers")
	require.Contains(t, page, "MailJob&lt;b&gt;")
	require.Contains(t, page, "boom")
	require.NotContains(t, page, "secret")
	var data struct {
		Sets map[string]int
		Next string
		Jobs []struct {
			JID   string
			Retry int `json:"retry_count"`
		}
	}
	s.read("/sidekiq.json?set=retry", &data)
	require.Equal(t, map[string]int{"schedule": 0, "retry": 60, "dead": 0}, data.Sets)
	require.Len(t, data.Jobs, 50)
	require.Equal(t, 3, data.Jobs[0].Retry)
	s.read("/sidekiq.json?set=retry&cursor="+data.Next, &data)
	require.Len(t, data.Jobs, 10)
	require.Equal(t, "j50", data.Jobs[0].JID)
}
