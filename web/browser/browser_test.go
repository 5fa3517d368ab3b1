package browser_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/web"
)

// one is the browser of all tests: each has a tab of its own.
var one context.Context

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	path, err := exec.LookPath("chromium")
	if err != nil {
		println("the browser tests need Chromium: apt-get install chromium")
		return 1
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("host-resolver-rules", "MAP "+elsewhere+" 127.0.0.1"))
	allocated, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	browser, end := chromedp.NewContext(allocated)
	defer end()
	if err := chromedp.Do(browser); err != nil {
		println("Chromium does not start:", err.Error())
		return 1
	}
	one = browser
	return m.Run()
}

// elsewhere is another machine's name to the browser, whose plain HTTP it does not trust. It leads here.
const elsewhere = "page.test"

// tab is a tab of the browser that shows a page of its own, on a server of its own.
type tab struct {
	*testing.T
	ctx    context.Context
	server *luatomictest.Server
	client *redis.Client
	url    string
	// front, if set, answers in place of the page, as a proxy before it does.
	front atomic.Pointer[http.HandlerFunc]
}

const patience = 20 * time.Second

func open(t *testing.T, opts web.Options) *tab {
	t.Helper()
	server := luatomictest.StartServer(t)
	client := server.Client()
	b := &tab{T: t, server: server, client: client}
	handler := web.Handler(client, &opts)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if front := b.front.Load(); front != nil {
			(*front)(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(page.Close)
	ctx, cancel := chromedp.NewContext(one)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(ctx))
	within, end := context.WithTimeout(ctx, 3*patience)
	t.Cleanup(end)
	b.ctx, b.url = within, page.URL
	return b
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	require.NoError(b, chromedp.Do(b.ctx, steps...))
}

// visit opens an address and returns its status.
func (b *tab) visit(path string) int {
	b.Helper()
	response, err := chromedp.Run(b.ctx, chromedp.NavigateResponse(b.url+path))
	require.NoError(b, err)
	return int(response.Status)
}

// follow clicks and waits for the next page.
func (b *tab) follow(selector string) int {
	b.Helper()
	response, err := chromedp.RunResponse(b.ctx, chromedp.Click(chromedp.CSS(selector)))
	require.NoError(b, err, selector)
	return int(response.Status)
}

// text is what a person reads on the page.
func (b *tab) text() string {
	b.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("body")))
	require.NoError(b, err)
	return text
}

// eval runs JavaScript as the developer tools do.
func eval[T any](b *tab, expression string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b, err, expression)
	return v
}

func (b *tab) queue(name string) *queue.Queue {
	b.Helper()
	q, err := queue.New(b.client, name, nil)
	require.NoError(b, err)
	return q
}

func (b *tab) stats(q *queue.Queue) queue.Stats {
	b.Helper()
	st, err := q.Stats(b.Context())
	require.NoError(b, err)
	return st
}

// bury makes dead jobs.
func (b *tab) bury(q *queue.Queue, reason string, jobs ...queue.Job) {
	b.Helper()
	_, err := q.Push(b.Context(), jobs...)
	require.NoError(b, err)
	taken, err := q.Take(b.Context(), len(jobs))
	require.NoError(b, err)
	require.NoError(b, q.Bury(b.Context(), reason, taken.Deliveries...))
}

// lock takes a lock, with a note.
func (b *tab) lock(name, note string) *lock.Lease {
	b.Helper()
	locker := lock.New(b.client, &lock.Options{Note: note, TTL: time.Minute})
	b.Cleanup(func() { _ = locker.Close() })
	lease, err := locker.Try(b.Context(), name)
	require.NoError(b, err)
	return lease
}
