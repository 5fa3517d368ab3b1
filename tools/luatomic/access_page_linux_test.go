package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// working consumes a queue until the test ends. It returns when the list of workers has its job.
func working(t *testing.T, client *redis.Client, prefix, name string) {
	t.Helper()
	q, err := queue.New(client, name, &queue.Options{Prefix: prefix})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	began, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		opts := &queue.ConsumeOptions{Grace: 1, Concurrency: 1}
		_, _ = q.Consume(ctx, opts, func(ctx context.Context, _ *queue.Delivery) error {
			began <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	t.Cleanup(func() { stop(); <-ended })
	<-began
	luatomictest.Eventually(t, within, "the worker is listed with its job", func() bool {
		all, err := queue.Workers(t.Context(), client, prefix)
		return err == nil && len(all) == 1 && len(all[0].Consumers) == 1 && len(all[0].Consumers[0].Holding) > 0
	})
}

// furnished fills a server with some of each thing that a page shows.
func furnished(t *testing.T, server *luatomictest.Server, prefix string) {
	t.Helper()
	e := &env{t: t, url: server.URL(), prefix: prefix}
	q, err := queue.New(server.Client(), "mail", &queue.Options{Prefix: prefix})
	require.NoError(t, err)
	_, err = q.Push(t.Context(), queue.Job{
		ID: "dead", Body: []byte(`{"to":"ann"}`), Headers: map[string]string{"trace": "1"},
	})
	require.NoError(t, err)
	taken, err := q.Take(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, taken.Deliveries[0].Bury(t.Context(), "smtp: 550"))
	_, err = q.Push(t.Context(), queue.Job{ID: "held"})
	require.NoError(t, err)
	working(t, server.Client(), prefix, "mail")
	_, err = q.Push(t.Context(), queue.Job{ID: "ready"}, queue.Job{ID: "scheduled", Delay: time.Hour})
	require.NoError(t, err)
	locker := lock.New(server.Client(), &lock.Options{Prefix: prefix, TTL: time.Hour, Note: "the test"})
	t.Cleanup(func() { _ = locker.Close() })
	_, err = locker.Try(t.Context(), "nightly")
	require.NoError(t, err)
	_, err = locker.RW("report").Try(t.Context())
	require.NoError(t, err)
	_, err = locker.Semaphore("partner", 2).Try(t.Context(), 1)
	require.NoError(t, err)
	e.serve("text.upper", "--text", "--node", "web-1", "--", "tr", "a-z", "A-Z")
}

// refusals are what the server has refused its users since the last call.
func refusals(t *testing.T, server *luatomictest.Server) (all []any) {
	t.Helper()
	all, err := server.Client().Do(t.Context(), "ACL", "LOG").Slice()
	require.NoError(t, err)
	require.NoError(t, server.Client().Do(t.Context(), "ACL", "LOG", "RESET").Err())
	return all
}

// pagesOfWeb are all addresses that read, with something to show.
var pagesOfWeb = []string{
	"", "queue?name=mail", "queue?name=mail&state=ready", "queue?name=mail&state=scheduled",
	"queue?name=mail&state=leased", "queue?name=mail&state=dead", "queue?name=mail&state=dead&text=550",
	"job?name=mail&id=dead", "job?name=mail&id=held", "job?name=mail&id=ready&body=1", "job?name=mail&id=scheduled",
	"running", "locks", "locks?kind=rw", "locks?kind=semaphore", "locks?name=nightly", "rpc", "server",
}

// The rights of the role page are enough for the page and for top: the server refuses nothing, and shows Sidekiq to a
// user that may read it.
func TestRightsOfThePage(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes")
	e := asApp(t, server, nil, "--role", "page")
	furnished(t, server, e.prefix)
	refusals(t, server)
	web := e.start("web", "--listen", "127.0.0.1:0")
	base := web.first("url")["url"].(string)
	require.Empty(t, refusals(t, server))
	for _, page := range pagesOfWeb {
		require.NotContains(t, fetched(t, base+page), "NOPERM", page)
		require.Empty(t, refusals(t, server), page)
	}
	require.NotContains(t, fetched(t, base), "/sidekiq")
	p := e.onTerminal(200, 50, "top", "--every", "100ms")
	for _, text := range []string{"mail", "held", "nightly", "web-1."} {
		p.seen(text)
	}
	p.drew()
	p.types("q")
	p.ends(exitDone)
	require.Empty(t, refusals(t, server))

	// A Sidekiq whose keys this user may not read has no link, and is asked for once.
	require.NoError(t, server.Client().SAdd(t.Context(), "queues", "default").Err())
	for range 3 {
		require.NotContains(t, fetched(t, base), "/sidekiq")
	}
	require.Len(t, refusals(t, server), 1)
	web.signal(os.Interrupt)
	web.exits(exitInterrupted)
}

// The rights of a program, with those of --audit, are enough for what the page changes.
func TestRightsOfThePageThatWrites(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes")
	e := asApp(t, server, nil, "--audit")
	furnished(t, server, e.prefix)
	web := e.start("web", "--listen", "127.0.0.1:0", "--write")
	base := web.first("url")["url"].(string)
	for _, page := range pagesOfWeb { // with the rights of a program it shows no settings and no Sidekiq
		fetched(t, base+page)
	}
	refusals(t, server)
	fence := e.run("locks", "show", "nightly").exits(exitDone).object()["fence"].(float64)
	for _, change := range [][]string{
		{"queue/settings?name=mail", "verb=pause"},
		{"queue/settings?name=mail", "verb=resume"},
		{"queue/settings?name=mail", "verb=limit&limit=100"},
		{"jobs?name=mail", "verb=requeue&state=dead&id=dead"},
		{"jobs?name=mail", "verb=reschedule&state=scheduled&id=scheduled&in=1h"},
		{"jobs?name=mail", "verb=bury&state=ready&id=ready"},
		{"jobs?name=mail", "verb=delete&state=dead&id=ready&confirm=1"},
		{"jobs?name=mail", "verb=cancel&state=ready&id=dead&confirm=1"},
		{"locks/release?name=nightly&kind=lock", fmt.Sprintf("confirm=1&fence=%.0f", fence)},
	} {
		form, err := url.ParseQuery(change[1])
		require.NoError(t, err)
		done, err := http.PostForm(base+change[0], form)
		require.NoError(t, err)
		text, err := io.ReadAll(done.Body)
		require.NoError(t, errors.Join(err, done.Body.Close()))
		require.Equal(t, http.StatusOK, done.StatusCode, "%s: %s", change, text)
		require.Empty(t, refusals(t, server), change)
	}
	require.False(t, e.run("locks", "show", "nightly").exits(exitDone).object()["held"].(bool))
	web.signal(os.Interrupt)
	web.exits(exitInterrupted)
}
