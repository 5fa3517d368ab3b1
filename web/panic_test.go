package web_test

import (
	"bytes"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/web"
)

// A callback that panics fails its page alone. The log has the stack, and the page only the number.
func TestAPanicOfACallbackIsInTheLogWithItsStack(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]web.Options{
		"Redact":    {Redact: func(string, string, []byte) []byte { panic("not this body") }},
		"Authorize": {Authorize: func(*http.Request) web.Role { panic("not this body") }},
	} {
		failures := make(chan error, 1)
		opts.OnError = func(_ string, err error) { failures <- err }
		s := newSite(t, opts)
		_, err := s.queue("mail").Push(t.Context(), queue.Job{ID: "a", Body: []byte("b")})
		require.NoError(t, err)
		r := s.get("/job?name=mail&id=a&body=text")
		require.Equal(t, http.StatusInternalServerError, r.code, name)
		require.NotContains(t, r.body, "not this body", name)
		require.Regexp(t, `panic: not this body\n(?s:.*)panic_test.go`, (<-failures).Error(), name)
	}
}

// A log that panics costs no page, and no process: parts of a page are read in goroutines of their own.
func TestALogThatPanicsCostsNoPage(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{OnError: func(string, error) { panic("no log") }})
	q := s.queue("mail")
	_, err := q.Push(t.Context(), queue.Job{At: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	k, err := keys.NewQueue(s.prefix, "", "mail")
	require.NoError(t, err)
	require.NoError(t, s.client.Set(t.Context(), k.Ready, "no list", 0).Err())
	require.Regexp(t, `Number <code>\w{8}</code>`, s.ok("/"))
}

// A change that a panic ends is in the audit log, with the jobs that it had changed before.
func TestAPanicHidesNoChangeFromTheAuditLog(t *testing.T) {
	t.Parallel()
	actions := make(chan web.Action, 1)
	s := newSite(t, web.Options{Write: true, OnAction: func(_ *http.Request, a web.Action) { actions <- a },
		Redact: func(_, _ string, body []byte) []byte {
			if bytes.Contains(body, []byte("bad")) {
				panic("not this body")
			}
			return body
		}})
	q := s.queue("mail")
	_, err := q.Push(t.Context(), queue.Job{Body: []byte("bad x")})
	require.NoError(t, err)
	s.push(q, 250, queue.Job{Body: []byte("x")}) // of which a step has 200, the latest first
	form := url.Values{"state": {"ready"}, "text": {"x"}, "all": {"cancel"}, "confirm": {"251"}}
	r := s.do(http.MethodPost, "/jobs?name=mail", form)
	require.Equal(t, http.StatusInternalServerError, r.code, r.body)
	require.Len(t, actions, 1)
	done := <-actions
	require.Equal(t, "cancel", done.Verb)
	require.Equal(t, 200, done.Done)
	require.ErrorContains(t, done.Err, "panic")
}
