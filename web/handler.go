package web

import (
	"context"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/operate"
	"github.com/luatomic/luatomic/internal/show"
)

// Handler serves the pages of a server; nil options mean the defaults. Nothing is sent and nothing starts before the
// first request. The handler does not close the clients.
func Handler(client redis.UniversalClient, opts *Options) http.Handler {
	h := &handler{client: client, writer: client, pages: pages(), waiting: make(chan struct{}, MaxAtOnce),
		countFor: countFor, changeFor: changeFor}
	if opts != nil {
		h.opts = *opts
	}
	if h.opts.WriteClient != nil {
		h.writer = h.opts.WriteClient
	}
	if h.opts.Path = strings.Trim(h.opts.Path, "/"); h.opts.Path != "" {
		h.opts.Path = "/" + h.opts.Path
	}
	h.opts.Hosts = slices.Clone(h.opts.Hosts)
	for i, name := range h.opts.Hosts {
		h.opts.Hosts[i] = hostOf(strings.TrimSpace(name))
	}
	h.routes = map[string]route{
		"/":        {serve: h.overview},
		"/queue":   {serve: h.queuePage, object: []string{"name", "tag"}},
		"/job":     {serve: h.jobPage, object: []string{"name", "tag", "id"}},
		"/running": {serve: h.running},
		"/locks":   {serve: h.locks, object: []string{"kind", "name"}},
		"/rpc":     {serve: h.rpc, object: []string{"name"}},
		"/sidekiq": {serve: h.sidekiq, object: []string{"set"}},
		"/server":  {serve: h.server},

		"/jobs":           {serve: h.changeJobs, changes: true, object: []string{"name", "tag"}},
		"/queue/settings": {serve: h.changeQueue, changes: true, object: []string{"name", "tag"}},
		"/locks/release":  {serve: h.release, changes: true, object: []string{"kind", "name"}},
	}
	return h
}

type handler struct {
	client, writer redis.UniversalClient
	opts           Options
	routes         map[string]route
	pages          map[string]*template.Template
	origin         http.CrossOriginProtection
	waiting        chan struct{} // a place for each request that waits for the server
	countFor       time.Duration // how long one request counts jobs that match
	changeFor      time.Duration // how long one request changes all jobs of a state
	rates          operate.Meter
	sidekiqSeen    atomic.Bool
	sidekiqRefused atomic.Bool // this user may not read it
}

// route is one address. Its function reads the server, or changes it.
type route struct {
	serve   func(ctx context.Context, q *request) (answer, error)
	changes bool
	object  []string // the parameters of the address that name what is read or changed
}

// request is a request whose role is known.
type request struct {
	*http.Request
	role   Role
	json   bool
	object url.Values   // of the address alone, by which Options.Authorize decides
	form   url.Values   // all else: of the address and, for a change, of the body
	made   atomic.Int64 // how many things a change has changed so far
}

// of is a part of the object's name.
func (q *request) of(part string) string { return q.object.Get(part) }

func (q *request) get(name string) string { return q.form.Get(name) }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	r = withNames(r)
	path, mounted := strings.CutPrefix(r.URL.Path, h.opts.Path)
	q := &request{Request: r}
	if path, q.json = strings.CutSuffix(path, ".json"); !q.json {
		q.json = strings.Contains(r.Header.Get("Accept"), "application/json")
	}
	if path == "" || path == "/index" {
		path = "/"
	}
	a, err := h.answerTo(w, q, path, mounted)
	switch {
	case err != nil:
		f := *h.faultOf(err)
		f.Done = int(q.made.Load())
		if f.Status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "2")
		}
		if f.allow != "" {
			w.Header().Set("Allow", f.allow)
		}
		a = answer{page: "fault", title: http.StatusText(f.Status), data: &f, status: f.Status}
	case a.page == "":
		return // an asset
	}
	h.render(w, q, a)
}

// readNames replaces names that are written as a page writes them by the names themselves.
func readNames(from url.Values) (changed bool) {
	for _, part := range []string{"name", "tag", "id", "kind"} {
		for i, text := range from[part] {
			from[part][i] = show.Named(text)
			changed = changed || from[part][i] != text
		}
	}
	return changed
}

// withNames is the request with the names themselves in its address: Options.Authorize and the routes read the same.
func withNames(r *http.Request) *http.Request {
	query := r.URL.Query()
	if !readNames(query) {
		return r
	}
	r, address := r.WithContext(r.Context()), *r.URL
	address.RawQuery = query.Encode()
	r.URL = &address
	return r
}

// answerTo checks the request and runs its route.
func (h *handler) answerTo(w http.ResponseWriter, q *request, path string, mounted bool) (answer, error) {
	var err error
	if q.role, err = h.roleOf(q.Request); err != nil {
		return answer{}, err
	}
	route, known := h.routes[path]
	switch {
	case !mounted:
		return answer{}, faultf(http.StatusNotFound, "Use no http.StripPrefix, and no proxy that removes it.",
			"The address does not begin with Options.Path, %q.", h.opts.Path)
	case !known && !isAsset(path):
		return answer{}, faultf(http.StatusNotFound, "Begin at the overview.", "There is no such page.")
	case !known:
		if err := h.checkMethod(q.Request, false); err != nil {
			return answer{}, err
		}
		http.ServeFileFS(w, q.Request, files, "page"+path)
		return answer{}, nil
	}
	if err := h.checkMethod(q.Request, route.changes); err != nil {
		return answer{}, err
	}
	if err := q.parse(w, route); err != nil {
		return answer{}, err
	}
	return h.within(q, route)
}

func isAsset(path string) bool {
	return path == "/style.css" || path == "/page.js" || path == "/icon.svg"
}

// maxForm is enough for a page of selected jobs.
const maxForm = 1 << 20

// parse reads what the address names, and what the request says of it. The address alone names the object, and no field
// of a form overrides one of the address: Authorize has decided by what it saw there.
func (q *request) parse(w http.ResponseWriter, route route) error {
	q.object, q.form = url.Values{}, q.URL.Query()
	for _, part := range route.object {
		if len(q.form[part]) > 1 {
			return faultf(http.StatusBadRequest, "Name it once.", "The address has %q more than once.", part)
		}
		q.object[part] = q.form[part]
		delete(q.form, part)
	}
	if !route.changes {
		return nil
	}
	q.Body = http.MaxBytesReader(w, q.Body, maxForm)
	if err := q.ParseForm(); err != nil {
		return faultf(http.StatusBadRequest, "Send a form of at most 1 MiB.", "The form cannot be read.")
	}
	for field := range q.PostForm {
		if slices.Contains(route.object, field) || q.form.Has(field) {
			return faultf(http.StatusBadRequest, "Write it into the address, and leave it out of the form.",
				"The form has the field %q, which the address alone may have.", shown(40, field))
		}
	}
	readNames(q.PostForm)
	maps.Copy(q.form, q.PostForm)
	return nil
}

// within runs the route for at most Timeout. A client of go-redis can stay in a read for longer than its context: the
// request then ends without it.
func (h *handler) within(q *request, route route) (answer, error) {
	select {
	case h.waiting <- struct{}{}:
	default:
		return answer{}, errBusy
	}
	ctx, cancel := context.WithTimeout(q.Context(), Timeout)
	type result struct {
		answer
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-h.waiting }()
		defer cancel()
		var r result
		r.err = caught(func() (err error) {
			r.answer, err = route.serve(ctx, q)
			return err
		})
		done <- r
	}()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done: // it ended in the same moment
		return r.answer, r.err
	case <-time.After(50 * time.Millisecond):
		return answer{}, context.Cause(ctx)
	}
}
