package web_test

import (
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/web"
)

// ownRole is an Authorize that gives all rights to what is named "mine", and to nothing else.
func ownRole(r *http.Request) web.Role {
	q := r.URL.Query()
	if q.Get("name") == "mine" && q.Get("tag") == "" && q.Get("kind") != "rw" {
		return web.Operator
	}
	return web.View
}

// objectSite has queues and locks of one's own and of others, which differ by name, tag or kind.
type objectSite struct {
	*site
	queues []*queue.Queue
	leases []*lock.Lease
}

func newObjectSite(t *testing.T) *objectSite {
	t.Helper()
	s := &objectSite{site: newSite(t, web.Options{Write: true, Authorize: ownRole})}
	blue, err := queue.New(s.client, "mine", &queue.Options{Prefix: s.prefix, Tag: "blue"})
	require.NoError(t, err)
	s.queues = []*queue.Queue{s.queue("mine"), s.queue("theirs"), blue}
	for _, q := range s.queues {
		s.bury(q, "boom", queue.Job{ID: "a"})
	}
	locker := lock.New(s.client, &lock.Options{Prefix: s.prefix, TTL: time.Minute})
	t.Cleanup(func() { _ = locker.Close() })
	for _, name := range []string{"mine", "theirs"} {
		lease, err := locker.Try(t.Context(), name)
		require.NoError(t, err)
		s.leases = append(s.leases, lease)
	}
	return s
}

// untouched says that no queue and no lock has changed.
func (s *objectSite) untouched(what string) {
	s.t.Helper()
	for _, q := range s.queues {
		st := s.stats(q)
		require.Equal(s.t, 1, st.Dead, what)
		require.False(s.t, st.Paused, what)
	}
	for _, lease := range s.leases {
		require.NoError(s.t, lease.Extend(s.t.Context()), what)
	}
}

// forms are a change of what is named "mine" for each address that changes something.
func (s *objectSite) forms() map[string]url.Values {
	return map[string]url.Values{
		"/jobs":           {"verb": {"delete"}, "state": {"dead"}, "id": {"a"}, "confirm": {"1"}},
		"/queue/settings": {"verb": {"pause"}},
		"/locks/release":  {"fence": {fmt.Sprint(s.leases[0].Fence())}},
	}
}

// named is the address with the parts of an object's name.
func named(path string, parts []string, name func(part string) string) string {
	q := url.Values{}
	for _, part := range parts {
		q.Set(part, name(part))
	}
	return path + "?" + q.Encode()
}

// own names what is one's own, others what another one owns, by the parameter that tells them apart.
var own, others = map[string]string{"name": "mine", "tag": "", "kind": "lock"},
	map[string]string{"name": "theirs", "tag": "blue", "kind": "rw"}

// The address alone names what is changed, as Authorize has decided by it: a form that names it too is refused by each
// address that changes something, and so is an address that names it twice.
func TestAFormNamesNoOtherObjectThanItsAddress(t *testing.T) {
	t.Parallel()
	s := newObjectSite(t)
	objects, forms := web.Objects(s.handler, true), s.forms()
	require.ElementsMatch(t, slices.Collect(maps.Keys(forms)), slices.Collect(maps.Keys(objects)))
	for path, parts := range objects {
		require.Contains(t, parts, "name", path)
		mine := named(path, parts, func(part string) string { return own[part] })
		for _, part := range parts {
			form := maps.Clone(forms[path])
			form.Set(part, others[part])
			s.refuses(mine, form, "leave it out of the form")
			s.refuses(strings.Replace(mine, "?", ".json?", 1), form, "leave it out of the form")
			s.refuses(mine+"&"+part+"="+others[part], forms[path], "more than once")
			theirs := named(path, parts, func(p string) string {
				if p == part {
					return others[p]
				}
				return own[p]
			})
			require.Equal(t, http.StatusForbidden, s.do(http.MethodPost, theirs, forms[path]).code, theirs)
		}
		for field := range forms[path] {
			s.refuses(mine+"&"+field+"=none", forms[path], "leave it out of the form")
		}
		s.untouched(path)
	}
	for path, parts := range objects {
		mine := named(path, parts, func(part string) string { return own[part] })
		require.Equal(t, http.StatusOK, s.do(http.MethodPost, mine, forms[path]).code, mine)
	}
}

func (s *objectSite) refuses(target string, form url.Values, says string) {
	s.t.Helper()
	r := s.do(http.MethodPost, target, form)
	require.Equal(s.t, http.StatusBadRequest, r.code, "%s %v: %s", target, form, r.body)
	require.Contains(s.t, r.body, says, target)
	s.untouched(target)
}

// An address that names its object twice is refused: a proxy could decide by the one, and the page show the other.
func TestAnAddressNamesItsObjectOnce(t *testing.T) {
	t.Parallel()
	s := newObjectSite(t)
	for path, parts := range web.Objects(s.handler, false) {
		for _, part := range parts {
			r := s.get(path + "?" + part + "=mine&" + part + "=theirs")
			require.Equal(t, http.StatusBadRequest, r.code, "%s %s", path, part)
			require.Contains(t, r.body, "more than once")
		}
	}
}

// Two queues of one name differ by their tag in the audit log too. A lock has its kind there.
func TestAnActionTellsTheQueuesOfOneNameApart(t *testing.T) {
	t.Parallel()
	s := newObjectSite(t)
	var log []web.Action
	s.handler = web.Handler(s.client, &web.Options{Prefix: s.prefix, Write: true,
		OnAction: func(_ *http.Request, a web.Action) { log = append(log, a) }})
	for _, step := range [][2]string{
		{"/jobs?name=mine", "queue mine"}, {"/jobs?name=mine&tag=blue", "queue mine {blue}"},
		{"/queue/settings?name=mine&tag=blue", "queue mine {blue}"},
		{"/locks/release?name=mine&kind=lock", "lock mine"},
	} {
		path, _, _ := strings.Cut(step[0], "?")
		require.Equal(t, http.StatusOK, s.do(http.MethodPost, step[0], s.forms()[path]).code, step[0])
		require.Equal(t, step[1], log[len(log)-1].Target)
	}
}

// The links of a list lead to its jobs, whatever is in their ids: blanks at the ends, and what has a meaning in a URL.
func TestTheLinksOfAListLeadToItsJobs(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	ids := []string{" blank ", "a&b=c", "a+b", "a%2fb", "<b>", `"'`, "a#b?c", "../x"}
	for _, id := range ids {
		_, err := s.queue("mail").Push(t.Context(), queue.Job{ID: id})
		require.NoError(t, err)
	}
	links := regexp.MustCompile(`href="(/job\?[^"]*)"`).FindAllStringSubmatch(s.ok("/queue?name=mail"), -1)
	require.Len(t, links, len(ids))
	for i, link := range links {
		var job struct{ ID string }
		s.read(strings.Replace(html.UnescapeString(link[1]), "/job", "/job.json", 1), &job)
		require.Equal(t, ids[i], job.ID)
	}
}
