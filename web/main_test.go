package web_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/web"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// site is a handler with its server and a prefix of the test's own.
type site struct {
	t       *testing.T
	client  redis.UniversalClient
	prefix  string
	handler http.Handler
}

func newSite(t *testing.T, opts web.Options) *site {
	t.Helper()
	return newSiteOn(t, luatomictest.Client(t), opts)
}

func newSiteOn(t *testing.T, client redis.UniversalClient, opts web.Options) *site {
	t.Helper()
	opts.Prefix = luatomictest.Namespace(t) + ":"
	return &site{t: t, client: client, prefix: opts.Prefix, handler: web.Handler(client, &opts)}
}

func (s *site) queue(name string) *queue.Queue {
	s.t.Helper()
	q, err := queue.New(s.client, name, &queue.Options{Prefix: s.prefix})
	require.NoError(s.t, err)
	return q
}

// bury makes dead jobs of a queue, with the reason.
func (s *site) bury(q *queue.Queue, reason string, jobs ...queue.Job) {
	s.t.Helper()
	_, err := q.Push(s.t.Context(), jobs...)
	require.NoError(s.t, err)
	taken, err := q.Take(s.t.Context(), len(jobs))
	require.NoError(s.t, err)
	require.Len(s.t, taken.Deliveries, len(jobs))
	require.NoError(s.t, q.Bury(s.t.Context(), reason, taken.Deliveries...))
}

// response is what a request got.
type response struct {
	code   int
	body   string
	header http.Header
}

// do sends a request of this machine, after change was applied to it.
func (s *site) do(method, target string, form url.Values, change ...func(*http.Request)) response {
	s.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r := httptest.NewRequestWithContext(s.t.Context(), method, target, body)
	r.Host, r.RemoteAddr = "127.0.0.1:8080", "127.0.0.1:4711"
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return response{w.Code, w.Body.String(), w.Header()}
}

func (s *site) get(target string, change ...func(*http.Request)) response {
	s.t.Helper()
	return s.do(http.MethodGet, target, nil, change...)
}

// ok is a GET that must succeed.
func (s *site) ok(target string) string {
	s.t.Helper()
	r := s.get(target)
	require.Equal(s.t, http.StatusOK, r.code, "%s: %s", target, r.body)
	return r.body
}

// read decodes the JSON of an address.
func (s *site) read(target string, into any) {
	s.t.Helper()
	r := s.get(target)
	require.Equal(s.t, http.StatusOK, r.code, "%s: %s", target, r.body)
	require.Equal(s.t, "application/json; charset=utf-8", r.header.Get("Content-Type"))
	require.NoError(s.t, json.Unmarshal([]byte(r.body), into), r.body)
}
