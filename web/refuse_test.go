package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/web"
)

// changes are forms that would change something.
func changes(fence int64) map[string]url.Values {
	return map[string]url.Values{
		"/jobs?name=mail":                       {"verb": {"delete"}, "state": {"dead"}, "id": {"a"}, "confirm": {"1"}},
		"/queue/settings?name=mail":             {"verb": {"pause"}},
		"/locks/release?kind=lock&name=nightly": {"fence": {fmt.Sprint(fence)}},
	}
}

// untouched says that none of them has changed anything.
func (s *site) untouched(q *queue.Queue, lease *lock.Lease) {
	s.t.Helper()
	st := s.stats(q)
	require.Equal(s.t, 1, st.Dead)
	require.False(s.t, st.Paused)
	require.NoError(s.t, lease.Extend(s.t.Context()))
}

func (s *site) deadJobAndLock() (*queue.Queue, *lock.Lease) {
	s.t.Helper()
	q := s.queue("mail")
	s.bury(q, "boom", queue.Job{ID: "a", Body: []byte("secret body")})
	locker := lock.New(s.client, &lock.Options{Prefix: s.prefix, TTL: time.Minute, Note: "host-7"})
	s.t.Cleanup(func() { _ = locker.Close() })
	lease, err := locker.Try(s.t.Context(), "nightly")
	require.NoError(s.t, err)
	return q, lease
}

// Without Write there is no button, and each address that changes something refuses.
func TestReadOnlyRefusesEveryChange(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	q, lease := s.deadJobAndLock()
	for _, target := range []string{"/", "/queue?name=mail", "/job?name=mail&id=a", "/locks?name=nightly", "/running"} {
		require.NotContains(t, s.ok(target), `method="post"`, target)
	}
	for target, form := range changes(lease.Fence()) {
		r := s.do(http.MethodPost, target, form)
		require.Equal(t, http.StatusForbidden, r.code, target)
		require.Contains(t, r.body, "read-only", target)
	}
	s.untouched(q, lease)
}

// A form of another site is refused, whatever the role.
func TestFormsOfOtherOriginsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q, lease := s.deadJobAndLock()
	for name, header := range map[string][2]string{
		"cross-site": {"Sec-Fetch-Site", "cross-site"}, "same-site": {"Sec-Fetch-Site", "same-site"},
		"an old browser": {"Origin", "https://evil.example"}, "no site": {"Origin", "null"},
	} {
		for target, form := range changes(lease.Fence()) {
			r := s.do(http.MethodPost, target, form, func(r *http.Request) {
				r.Header.Del("Sec-Fetch-Site")
				r.Header.Set(header[0], header[1])
			})
			require.Equal(t, http.StatusForbidden, r.code, "%s %s", name, target)
			require.Contains(t, r.body, "another site")
		}
	}
	s.untouched(q, lease)
}

func TestNoGetChangesAnything(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q, lease := s.deadJobAndLock()
	for target, form := range changes(lease.Fence()) {
		r := s.get(target + "&" + form.Encode())
		require.Equal(t, http.StatusMethodNotAllowed, r.code, target)
		require.Equal(t, "POST", r.header.Get("Allow"), target)
	}
	for target, method := range map[string]string{
		"/queue?name=mail": http.MethodPost, "/": http.MethodDelete, "/style.css": http.MethodPut,
	} {
		r := s.do(method, target, url.Values{})
		require.Equal(t, http.StatusMethodNotAllowed, r.code, target)
		require.Equal(t, "GET, HEAD", r.header.Get("Allow"), target)
	}
	s.untouched(q, lease)
}

// Each right is asked for where it is used: a role has what it has, and nothing beside.
func TestEachRightIsAskedFor(t *testing.T) {
	t.Parallel()
	var role web.Role
	s := newSite(t, web.Options{Write: true, Authorize: func(*http.Request) web.Role { return role }})
	q, lease := s.deadJobAndLock()
	require.Equal(t, http.StatusForbidden, s.get("/").code)
	role = web.View
	for target, secret := range map[string]string{"/queue?name=mail": "boom", "/locks?name=nightly": "host-7",
		"/job?name=mail&id=a": "boom"} {
		require.NotContains(t, s.ok(target), secret, target)
		require.NotContains(t, s.ok(strings.Replace(target, "?", ".json?", 1)), secret, target)
	}
	require.Equal(t, http.StatusForbidden, s.get("/job?name=mail&id=a&body=text").code)
	require.NotContains(t, s.ok("/queue.json?name=mail&text=boom"), `"id":"a"`, "a search shows no reason")
	role = web.Viewer
	require.Contains(t, s.ok("/queue?name=mail"), "boom")
	require.NotContains(t, s.ok("/queue.json?name=mail&text=secret"), `"id":"a"`, "nor a body")
	for target, form := range changes(lease.Fence()) {
		for _, other := range []web.Role{web.Viewer, web.Operator &^ (web.Jobs | web.Queues | web.Locks)} {
			role = other
			r := s.do(http.MethodPost, target, form)
			require.Equal(t, http.StatusForbidden, r.code, target)
			require.Contains(t, r.body, "You may not", target)
		}
	}
	role = web.Viewer | web.Queues
	require.Contains(t, s.ok("/queue?name=mail"), `value="pause"`)
	require.NotContains(t, s.ok("/queue?name=mail"), `value="delete"`)
	s.untouched(q, lease)
}

// Without Authorize the page is for its own machine: not by a connection from elsewhere, not through a proxy, not
// under a name of another site.
func TestPageIsForItsOwnMachine(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	for name, change := range map[string]func(*http.Request){
		"from elsewhere": func(r *http.Request) { r.RemoteAddr = "192.0.2.7:4711" },
		"another name":   func(r *http.Request) { r.Host = "rebound.example:8080" },
		"through proxy":  func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.7") },
	} {
		r := s.get("/", change)
		require.Equal(t, http.StatusForbidden, r.code, name)
		require.Contains(t, r.body, "its own machine", name)
		require.Equal(t, http.StatusForbidden, s.get("/style.css", change).code, name)
	}
	for _, host := range []string{"localhost:8080", "[::1]:8080", "127.0.0.1"} {
		require.Equal(t, http.StatusOK, s.get("/", func(r *http.Request) { r.Host = host }).code, host)
	}
	named := newSite(t, web.Options{Hosts: []string{"ops.example"}, Authorize: func(*http.Request) web.Role {
		return web.Viewer
	}})
	require.Equal(t, http.StatusForbidden, named.get("/").code)
	require.Equal(t, http.StatusOK, named.get("/", func(r *http.Request) {
		r.Host, r.RemoteAddr = "ops.example:443", "192.0.2.7:4711"
	}).code)
}

// Names of Hosts match in any case and around spaces; an empty one lets no request in.
func TestHostsAreCompared(t *testing.T) {
	t.Parallel()
	viewer := func(*http.Request) web.Role { return web.Viewer }
	hosts := []string{" Ops.Example ", "[::1]", ""}
	s := newSite(t, web.Options{Hosts: hosts, Authorize: viewer})
	for host, want := range map[string]int{"ops.example": http.StatusOK, "OPS.EXAMPLE:443": http.StatusOK,
		"[::1]:8080": http.StatusOK, "": http.StatusForbidden, "other.example": http.StatusForbidden} {
		require.Equal(t, want, s.get("/", func(r *http.Request) { r.Host = host }).code, host)
	}
	require.Equal(t, " Ops.Example ", hosts[0], "the caller's list stays as it was")
}

// What is not known yet is null, and a queue without failures has no line of failures.
func TestRateThatIsNotKnownIsNull(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	q := s.queue("mail")
	_, err := q.Push(t.Context(), queue.Job{Body: []byte("x")})
	require.NoError(t, err)
	require.Contains(t, s.ok("/index.json"), `"per_second":null`)
	require.NotContains(t, s.ok("/index.json"), `"per_second":-1`)
	page := s.ok("/")
	require.Contains(t, page, `<polyline class="done"`)
	require.NotContains(t, page, `<polyline class="bad"`)
}

// IsLocal is what an Authorize of the caller's own asks.
func TestIsLocal(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		local  bool
		change func(*http.Request)
	}{
		"this machine":    {true, func(*http.Request) {}},
		"IPv6":            {true, func(r *http.Request) { r.RemoteAddr, r.Host = "[::1]:4711", "[::1]:8080" }},
		"from elsewhere":  {false, func(r *http.Request) { r.RemoteAddr = "192.0.2.7:4711" }},
		"another name":    {false, func(r *http.Request) { r.Host = "rebound.example" }},
		"no name":         {false, func(r *http.Request) { r.Host = "" }},
		"forwarded":       {false, func(r *http.Request) { r.Header.Set("Forwarded", "for=192.0.2.7") }},
		"forwarded for":   {false, func(r *http.Request) { r.Header["X-Forwarded-For"] = []string{"", "192.0.2.7"} }},
		"real ip":         {false, func(r *http.Request) { r.Header.Set("X-Real-IP", "192.0.2.7") }},
		"forwarded proto": {false, func(r *http.Request) { r.Header.Set("X-Forwarded-Proto", "https") }},
		"via":             {false, func(r *http.Request) { r.Header.Set("Via", "1.1 front") }},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost:8080/", nil)
		r.RemoteAddr = "127.0.0.1:4711"
		tc.change(r)
		require.Equal(t, tc.local, web.IsLocal(r), name)
	}
}

// Bad input is answered with what and why, as a page and as JSON.
func TestBadInputIsNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	q := s.queue("mail")
	var jobs []queue.Job
	for i := range 60 {
		jobs = append(jobs, queue.Job{ID: fmt.Sprint("j", i)})
	}
	s.bury(q, "x", jobs...)
	s.bury(s.queue("news"), "x", jobs...)
	var page jobsPage
	s.read("/queue.json?name=mail", &page)
	require.NotEmpty(t, page.Next)
	script := url.QueryEscape(`<script>alert(1)</script>`)
	for target, want := range map[string]struct {
		code int
		says string
	}{
		"/queue?name=news&cursor=" + page.Next:             {400, "another list"},
		"/queue?name=mail&state=ready&cursor=" + page.Next: {400, "another list"},
		"/?cursor=" + page.Next:                            {400, "another list"},
		"/queue?name=mail&cursor=%00%3C":                   {400, "The cursor in the address is not valid."},
		"/queue?name=mail&cursor=AAAA":                     {400, "The cursor in the address is not valid."},
		"/queue?name=mail&state=" + script:                 {400, "No job is"},
		"/queue?name=" + script:                            {404, "There is no queue"},
		"/queue?name=a%7Bb":                                {400, "A name"},
		"/queue":                                           {400, "A name"},
		"/job?name=mail&id=" + script:                      {404, "has no job"},
		"/job?name=mail":                                   {400, "no id"},
		"/job?name=mail&id=" + strings.Repeat("x", 129):    {400, "no id"},
		"/locks?kind=" + script:                            {400, "No lock"},
		"/locks?name=a%0Ab":                                {400, "A name"},
		"/rpc?name=a%7Bb":                                  {400, "A name"},
		"/sidekiq?set=" + script:                           {400, "no set"},
		"/../../etc/passwd":                                {404, "no such page"},
		"/page/layout.html":                                {404, "no such page"},
	} {
		r := s.get(target)
		require.Equal(t, want.code, r.code, "%s: %s", target, r.body)
		require.Contains(t, r.body, want.says, target)
		require.NotContains(t, r.body, "<script>alert", target)
	}
	for name, form := range map[string]url.Values{
		"no state": {"verb": {"delete"}, "id": {"j1"}}, "no job": {"verb": {"delete"}, "state": {"dead"}},
		"no such verb":   {"verb": {"<script>"}, "state": {"dead"}, "id": {"j1"}},
		"another state":  {"verb": {"delete"}, "state": {"ready"}, "id": {"j1"}},
		"a wrong number": {"verb": {"delete"}, "state": {"dead"}, "id": {"j1"}, "confirm": {"many"}},
		"a wrong time":   {"all": {"delete"}, "state": {"dead"}, "until": {"then"}, "confirm": {"60"}},
		"too many":       {"verb": {"delete"}, "state": {"dead"}, "id": make([]string, 1001), "confirm": {"1001"}},
	} {
		r := s.do(http.MethodPost, "/jobs?name=mail", form)
		require.Equal(t, http.StatusBadRequest, r.code, "%s: %s", name, r.body)
		require.Equal(t, 60, s.stats(q).Dead, name)
	}
	big := s.do(http.MethodPost, "/jobs?name=mail", url.Values{"text": {strings.Repeat("x", 2<<20)}})
	require.Equal(t, http.StatusBadRequest, big.code)
	require.Equal(t, http.StatusBadRequest, s.do(http.MethodPost, "/queue/settings?name=mail",
		url.Values{"verb": {"limit"}, "limit": {"-1"}}).code)
	require.Equal(t, http.StatusBadRequest, s.do(http.MethodPost, "/locks/release?kind=lock&name=x",
		url.Values{"fence": {"0"}}).code)
}

// Texts of others are shown and do nothing: ids, reasons, headers, notes.
func TestTextsOfOthersAreQuoted(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	evil := `"><script>alert(1)</script>` + "\u202egnp\u009b31m"
	s.bury(s.queue("mail"), "reason "+evil, queue.Job{ID: `"><script>alert(2)</script>`,
		Kind:    "kind" + `<script>alert(3)`,
		Headers: map[string]string{"h<script>": evil}, Body: []byte(evil)})
	for _, target := range []string{"/queue?name=mail",
		"/job?name=mail&body=text&id=" + url.QueryEscape(`"><script>alert(2)</script>`)} {
		page := s.ok(target)
		require.NotContains(t, page, "<script>alert", target)
		require.NotContains(t, page, "\u202e", target)
		require.NotContains(t, page, "\u009b", target)
		require.Contains(t, page, `\u202e`, target)
		require.Contains(t, page, "&lt;script&gt;", target)
	}
	require.NotContains(t, s.ok("/queue.json?name=mail"), "<script>")
}

// A dead server is a page that says so, soon, and names neither the server nor a key.
func TestDeadServerIsAPage(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	var mu sync.Mutex
	var logged []string
	s := newSiteOn(t, server.Client(), web.Options{Write: true, OnError: func(id string, err error) {
		mu.Lock()
		defer mu.Unlock()
		logged = append(logged, id+" "+err.Error())
	}})
	s.bury(s.queue("mail"), "x", queue.Job{ID: "a"})
	require.Equal(t, http.StatusOK, s.get("/").code)
	server.Kill()
	var asked sync.WaitGroup
	for _, target := range []string{"/", "/queue?name=mail", "/running", "/locks", "/rpc", "/server", "/sidekiq"} {
		asked.Go(func() {
			began := time.Now()
			r := s.get(target)
			assert.Equal(t, http.StatusServiceUnavailable, r.code, "%s: %s", target, r.body)
			assert.Less(t, time.Since(began), web.Timeout+5*time.Second, target)
			assert.NotContains(t, r.body, server.Addr(), "no address of the server")
			assert.Equal(t, "2", r.header.Get("Retry-After"))
		})
	}
	asked.Wait()
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, logged)
	require.Equal(t, http.StatusOK, s.get("/style.css").code)
}

// An ACL that hides a queue: its own page says so, the overview shows the others.
func TestHiddenQueueHidesNoOther(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	s := newSiteOn(t, server.Client(), web.Options{})
	s.bury(s.queue("mail"), "x", queue.Job{ID: "a"})
	s.bury(s.queue("payroll"), "x", queue.Job{ID: "p"})
	rules := []any{"ACL", "SETUSER", "page", "reset", "on", ">pw", "+@all", "&*",
		"~" + s.prefix + "queues:*", "~" + s.prefix + "{mail}*"}
	require.NoError(t, server.Client().Do(t.Context(), rules...).Err())
	client := server.Client(func(o *redis.Options) { o.Username, o.Password = "page", "pw" })
	s.handler = web.Handler(client, &web.Options{Prefix: s.prefix})
	page := s.get("/")
	require.Equal(t, http.StatusOK, page.code)
	require.Contains(t, page.body, "name=mail&amp;tag=&amp;state=dead")
	require.Contains(t, page.body, "may not do that")
	require.NotContains(t, s.ok("/index.json"), `"days":null`)
	hidden := s.get("/queue?name=payroll")
	require.Equal(t, http.StatusForbidden, hidden.code)
	require.Contains(t, hidden.body, "luatomic acl")
	require.NotContains(t, hidden.body, "{payroll}", "no key")
	require.Equal(t, http.StatusOK, s.get("/queue?name=mail").code)
}

// An ACL that hides the counts of days: the page of the queue says so, and does not show zeros in their place.
func TestHiddenCountsAreNoZeros(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	s := newSiteOn(t, server.Client(), web.Options{})
	s.bury(s.queue("mail"), "x", queue.Job{ID: "a"})
	require.Contains(t, s.ok("/queue?name=mail"), "0 done")
	require.NoError(t, server.Client().Do(t.Context(), "ACL", "SETUSER", "page", "reset", "on", ">pw", "+@all", "&*",
		"~"+s.prefix+"{mail}*").Err())
	client := server.Client(func(o *redis.Options) { o.Username, o.Password = "page", "pw" })
	s.handler = web.Handler(client, &web.Options{Prefix: s.prefix})
	page := s.ok("/queue?name=mail")
	require.NotContains(t, page, "0 done")
	require.Contains(t, page, "could not be read")
	require.Contains(t, page, "The Redis user of this page may not do that.")
	require.Contains(t, page, "1 of 1 dead jobs", "what can be read is shown")
}

// A reader that leaves is no failure of the server.
func TestReaderThatLeavesIsNoFailure(t *testing.T) {
	t.Parallel()
	failures := make(chan error, 10)
	s := newSite(t, web.Options{OnError: func(_ string, err error) { failures <- err }})
	_, err := s.queue("mail").Push(t.Context(), queue.Job{})
	require.NoError(t, err)
	for _, target := range []string{"/", "/queue?name=mail", "/running", "/locks", "/rpc", "/server"} {
		s.get(target, func(r *http.Request) {
			gone, leave := context.WithCancel(t.Context())
			leave()
			*r = *r.WithContext(gone)
		})
	}
	require.Empty(t, failures)
}
