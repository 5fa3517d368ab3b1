package web_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
	"github.com/luatomic/luatomic/web"
)

// noTexts are three names that are one where bytes that are no text become U+FFFD, or are escaped in one way only.
var noTexts = []string{"b\xff", "b\xfe", `b\xff`}

// labels are the names as the page writes them.
var labels = []string{`b\xff`, `b\xfe`, `b\x5cxff`}

// The JSON tells apart all names and ids, whatever bytes they have, and an address and a form accept them as it writes
// them. A browser makes text of the fields of a form, and these are text.
func TestNamesThatAreNoText(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	for _, name := range noTexts {
		q, err := queue.New(s.client, name, &queue.Options{Prefix: s.prefix, Tag: name})
		require.NoError(t, err)
		_, err = q.Push(t.Context(), queue.Job{ID: "a\xff", Kind: name}, queue.Job{ID: "a\xfe"}, queue.Job{ID: `a\xff`})
		require.NoError(t, err)
	}
	var page struct{ Queues []struct{ Queue, Tag string } }
	s.read("/index.json", &page)
	require.Len(t, page.Queues, len(noTexts))
	for _, q := range page.Queues {
		require.Contains(t, labels, q.Queue)
		require.Equal(t, q.Queue, q.Tag)
		s.changesEach("?"+url.Values{"name": {q.Queue}, "tag": {q.Tag}}.Encode(), q.Queue)
	}
}

// changesEach cancels the jobs of a queue, each by the id that its list has.
func (s *site) changesEach(of, kind string) {
	s.t.Helper()
	var page struct{ Jobs []struct{ ID, Kind string } }
	s.read("/queue.json"+of, &page)
	require.Len(s.t, page.Jobs, 3)
	require.Equal(s.t, kind, page.Jobs[0].Kind)
	jobs := page.Jobs
	s.read("/queue.json"+of+"&kind="+url.QueryEscape(kind), &page)
	require.Len(s.t, page.Jobs, 1)
	var all changed
	s.post("/jobs.json"+of, url.Values{"all": {"bury"}, "state": {"ready"}, "kind": {kind}}, &all)
	require.Equal(s.t, 1, all.Count)
	for _, j := range jobs {
		var job struct{ ID string }
		s.read("/job.json"+of+"&id="+url.QueryEscape(j.ID), &job)
		require.Equal(s.t, j.ID, job.ID)
		var out changed
		form := url.Values{"verb": {"cancel"}, "state": {"ready"}, "id": {j.ID}, "confirm": {"1"}}
		s.post("/jobs.json"+of, form, &out)
		require.Equal(s.t, 1, out.Done, j.ID)
	}
}

// A form and a link of a page lead to the queue that they are of: what they send is text, and names it.
func TestFormsNameQueuesThatAreNoText(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	for i, name := range noTexts {
		_, err := s.queue(name).Push(t.Context(), queue.Job{ID: "a"})
		require.NoError(t, err)
		page := s.ok("/queue?name=" + url.QueryEscape(labels[i]))
		fields := regexp.MustCompile(`<input type="hidden" name="name" value="([^"]*)"`).FindAllStringSubmatch(page, -1)
		require.Len(t, fields, 2)
		for _, field := range fields {
			require.Equal(t, labels[i], html.UnescapeString(field[1]))
		}
		require.Contains(t, page, "<h1>"+labels[i]+"</h1>")
	}
}

// The same for locks, buses, methods and nodes.
func TestLocksAndBusesThatAreNoText(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	locker := lock.New(s.client, &lock.Options{Prefix: s.prefix, TTL: time.Minute})
	t.Cleanup(func() { _ = locker.Close() })
	for _, name := range noTexts {
		_, err := locker.Try(t.Context(), name)
		require.NoError(t, err)
		s.serve(name)
	}
	var locks struct {
		Locks []struct {
			Name  string
			Fence int64
		}
	}
	s.read("/locks.json", &locks)
	var names []string
	for _, l := range locks.Locks {
		names = append(names, l.Name)
		r := s.do(http.MethodPost, "/locks/release?kind=lock&name="+url.QueryEscape(l.Name),
			url.Values{"fence": {fmt.Sprint(l.Fence)}})
		require.Equal(t, http.StatusOK, r.code, r.body)
	}
	require.ElementsMatch(t, labels, names)
	var calls struct {
		Buses []struct {
			Bus     string
			Methods []struct{ Method string }
		}
	}
	s.read("/rpc.json", &calls)
	names = nil
	for _, b := range calls.Buses {
		names = append(names, b.Bus)
		require.Equal(t, b.Bus, b.Methods[0].Method)
		s.ok("/rpc?name=" + url.QueryEscape(b.Bus))
	}
	require.ElementsMatch(t, labels, names)
}

// serve runs a node of a bus whose method has the same name.
func (s *site) serve(name string) {
	s.t.Helper()
	bus, err := rpc.New(s.client, name, &rpc.Options{Prefix: s.prefix})
	require.NoError(s.t, err)
	twice := func(_ context.Context, n int) (int, error) { return 2 * n, nil }
	require.NoError(s.t, rpc.NewMethod[int, int](name).Serve(bus, twice, nil))
	go func() { _ = bus.Run(s.t.Context()) }()
	require.NoError(s.t, bus.Ready(s.t.Context()))
}

// Authorize decides by the name itself, whatever form it has in the address.
func TestAuthorizeSeesTheNameItself(t *testing.T) {
	t.Parallel()
	var seen []string
	s := newSite(t, web.Options{Authorize: func(r *http.Request) web.Role {
		seen = append(seen, r.URL.Query().Get("name"))
		return web.Operator
	}})
	for _, address := range []string{"b%ff", `b%5cxff`, `b%5cx5cxff`} {
		s.get("/queue?name=" + address)
	}
	require.Equal(t, []string{"b\xff", "b\xff", `b\xff`}, seen)
	require.Equal(t, 2, len(slices.Compact(seen)))
}
