package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
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

// A server that hangs holds as many requests as may wait, each for its time; more are refused at once. When it goes on,
// so does the page.
func TestHungServerHoldsFewRequests(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	s := newSiteOn(t, server.Client(), web.Options{})
	require.Equal(t, http.StatusOK, s.get("/").code)
	server.Pause()
	var busy, hung atomic.Int32
	var asked sync.WaitGroup
	for range web.MaxAtOnce + 8 {
		asked.Go(func() {
			began := time.Now()
			r := s.get("/running")
			assert.Equal(t, http.StatusServiceUnavailable, r.code)
			if strings.Contains(r.body, "requests wait for the server") {
				busy.Add(1)
				assert.Less(t, time.Since(began), web.Timeout/2)
				return
			}
			hung.Add(1)
			assert.Less(t, time.Since(began), web.Timeout+10*time.Second)
		})
	}
	asked.Wait()
	require.EqualValues(t, web.MaxAtOnce, hung.Load())
	require.EqualValues(t, 8, busy.Load())
	server.Resume()
	luatomictest.Eventually(t, 20*time.Second, "the page is served again", func() bool {
		return s.get("/running").code == http.StatusOK
	})
}

// A list of more locks than a page has says so; a look-up by name finds each.
func TestLongListOfLocksSaysThatItEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{})
	locker := lock.New(s.client, &lock.Options{Prefix: s.prefix, TTL: time.Minute})
	defer locker.Close()
	for i := range 201 {
		_, err := locker.Try(t.Context(), fmt.Sprintf("l%03d", i))
		require.NoError(t, err)
	}
	var data struct {
		Partial bool
		Locks   []struct{ Name string }
	}
	s.read("/locks.json", &data)
	require.True(t, data.Partial)
	require.LessOrEqual(t, len(data.Locks), 200)
	require.Contains(t, s.ok("/locks"), "Look a lock up by its name")
	require.Contains(t, s.ok("/locks.json?name=l137"), `"held":true`)
}

// The client that reads needs no right to write where another one makes the changes.
func TestChangesAreMadeByTheWriteClient(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	s := newSiteOn(t, server.Client(), web.Options{})
	q := s.queue("mail")
	s.bury(q, "x", queue.Job{ID: "a"})
	require.NoError(t, server.Client().Do(t.Context(), "ACL", "SETUSER", "reader", "reset", "on", ">pw", "~*",
		"&*", "+@all",
		"-@write").Err())
	reader := server.Client(func(o *redis.Options) { o.Username, o.Password = "reader", "pw" })
	form := url.Values{"verb": {"requeue"}, "state": {"dead"}, "id": {"a"}}
	s.handler = web.Handler(reader, &web.Options{Prefix: s.prefix, Write: true})
	require.Contains(t, s.ok("/queue?name=mail"), `value="requeue"`)
	refused := s.do(http.MethodPost, "/jobs?name=mail", form)
	require.Equal(t, http.StatusForbidden, refused.code, refused.body)
	require.Equal(t, 1, s.stats(q).Dead)
	s.handler = web.Handler(reader, &web.Options{Prefix: s.prefix, Write: true, WriteClient: s.client})
	require.Equal(t, http.StatusOK, s.do(http.MethodPost, "/jobs?name=mail", form).code)
	require.Equal(t, 1, s.stats(q).Ready)
}
