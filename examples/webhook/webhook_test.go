package webhook_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/examples/webhook"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// receiver is a handler of events of a source of its own, and delivers to it.
type receiver struct {
	client  *redis.Client
	source  string
	handler http.Handler
}

func newReceiver(t *testing.T, do webhook.Do) *receiver {
	t.Helper()
	r := &receiver{client: luatomictest.Client(t), source: luatomictest.Namespace(t)}
	r.handler = webhook.Handle(r.client, r.source, do)
	return r
}

func (e *receiver) deliver(ctx context.Context, id string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader("paid"))
	r.Header.Set("Event-Id", id)
	w := httptest.NewRecorder()
	e.handler.ServeHTTP(w, r)
	return w
}

func TestAnEventIsHandledOnce(t *testing.T) {
	t.Parallel()
	handled := 0
	e := newReceiver(t, func(_ context.Context, id string, body []byte) ([]byte, error) {
		handled++
		return []byte(id + " " + string(body)), nil
	})
	for range 3 {
		require.Equal(t, "e1 paid", e.deliver(t.Context(), "e1").Body.String())
	}
	require.Equal(t, 1, handled)
	for _, bad := range []string{"", "a{b}", strings.Repeat("x", 2000)} {
		require.Equal(t, http.StatusBadRequest, e.deliver(t.Context(), bad).Code)
	}

	_, err := webhook.Begin(t.Context(), e.client,
		webhook.BeginParams{Source: e.source, ID: "e2", Token: "other", Lease: time.Minute})
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, e.deliver(t.Context(), "e2").Code)
	require.Equal(t, 1, handled)
}

// A sender that hangs up while the event is handled gets the answer with its next delivery.
func TestASenderMayHangUp(t *testing.T) {
	t.Parallel()
	handled := 0
	sender, hangUp := context.WithCancel(t.Context())
	e := newReceiver(t, func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		handled++
		hangUp()
		end, ends := ctx.Deadline()
		require.True(t, ends && time.Until(end) < time.Minute, "it ends before its lease")
		return []byte("done"), ctx.Err()
	})
	e.deliver(sender, "e")
	require.Equal(t, "done", e.deliver(t.Context(), "e").Body.String())
	require.Equal(t, 1, handled)
}

// An answer that cannot be kept is a failure of its event: the next delivery need not wait for the end of the lease.
func TestAnAnswerThatIsTooLargeIsAFailure(t *testing.T) {
	t.Parallel()
	answer := make([]byte, 1<<20)
	e := newReceiver(t, func(context.Context, string, []byte) ([]byte, error) { return answer, nil })
	require.Equal(t, http.StatusServiceUnavailable, e.deliver(t.Context(), "e").Code)
	answer = []byte("done")
	require.Equal(t, "done", e.deliver(t.Context(), "e").Body.String())
}

// What could not be handled is handled with the next delivery, which need not wait for the end of the lease.
func TestAFailureIsTriedAgain(t *testing.T) {
	t.Parallel()
	failed := errors.New("no connection")
	e := newReceiver(t, func(context.Context, string, []byte) (answer []byte, err error) {
		err, failed = failed, nil
		return []byte("done"), err
	})
	require.Equal(t, http.StatusServiceUnavailable, e.deliver(t.Context(), "e").Code)
	w := e.deliver(t.Context(), "e")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "done", w.Body.String())
}

// An answer that came after the lease, when another attempt has the event, is not sent.
func TestALateAnswerIsNotSent(t *testing.T) {
	t.Parallel()
	var e *receiver
	e = newReceiver(t, func(ctx context.Context, id string, _ []byte) ([]byte, error) {
		key := "webhook:{" + e.source + "}:" + id
		return []byte("late"), e.client.Set(ctx, key, "run another", time.Minute).Err()
	})
	require.Equal(t, http.StatusServiceUnavailable, e.deliver(t.Context(), "e").Code)
	require.Equal(t, http.StatusConflict, e.deliver(t.Context(), "e").Code)
}

// The repeat of a call of Begin was answered, the attempt failed and was dropped, and then the first copy comes: the
// event stays free for the next delivery.
func TestALateCopyOfABeginningBlocksNoEvent(t *testing.T) {
	t.Parallel()
	client, source := luatomictest.Client(t), luatomictest.Namespace(t)
	begin := func(token string) webhook.BeginState {
		out, err := webhook.Begin(t.Context(), client,
			webhook.BeginParams{Source: source, ID: "e", Token: token, Lease: time.Minute})
		require.NoError(t, err)
		return out.State
	}
	for _, token := range []string{"first", "second"} {
		require.Equal(t, webhook.BeginStateRun, begin(token))
		had, err := webhook.Drop(t.Context(), client, webhook.DropParams{Source: source, ID: "e", Token: token})
		require.NoError(t, err)
		require.True(t, had)
	}
	require.Equal(t, webhook.BeginStateBusy, begin("first"), "the late copies")
	require.Equal(t, webhook.BeginStateBusy, begin("second"))
	require.Equal(t, webhook.BeginStateRun, begin("third"))
	require.Equal(t, webhook.BeginStateBusy, begin("first"))
	left := client.PTTL(t.Context(), "webhook-dropped:{"+source+"}:first").Val()
	require.True(t, left > 0 && left <= time.Hour, left)
}

// A call of Begin has no reply, and it has begun: the event is given back, and the next delivery need not wait for the
// end of the lease.
func TestABeginningOfUnknownOutcomeIsGivenBack(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	client, source, begins := redis.NewClient(lab.Must(redis.ParseURL(proxy.URL()))), luatomictest.Namespace(t), 0
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(&lab.Around{Sha: lab.Digest(&webhook.BeginScript), Do: func(run func() error) error {
		if begins++; begins == 2 {
			return redis.ErrClosed // no further try
		}
		return run()
	}})
	e := &receiver{client, source, webhook.Handle(client, source,
		func(context.Context, string, []byte) ([]byte, error) {
			return []byte("done"), nil
		})}
	proxy.Drop(1, lab.Sent(&webhook.BeginScript))
	require.Equal(t, http.StatusServiceUnavailable, e.deliver(t.Context(), "e").Code)
	require.Equal(t, 1, proxy.Stats().Lost, "it has begun")
	w := e.deliver(t.Context(), "e")
	require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
}

// A call of Begin that comes behind the Drop of its attempt, and before which nothing had begun, begins nothing.
func TestABeginningBehindItsDropBeginsNothing(t *testing.T) {
	t.Parallel()
	client, source := luatomictest.Client(t), luatomictest.Namespace(t)
	had, err := webhook.Drop(t.Context(), client, webhook.DropParams{Source: source, ID: "e", Token: "late"})
	require.NoError(t, err)
	require.False(t, had)
	for _, token := range []string{"late", "next"} {
		out, err := webhook.Begin(t.Context(), client,
			webhook.BeginParams{Source: source, ID: "e", Token: token, Lease: time.Minute})
		require.NoError(t, err)
		require.Equal(t, token == "late", out.State == webhook.BeginStateBusy, token)
	}
}

// An attempt whose lease was over has no say any more.
func TestTheLaterAttemptAnswers(t *testing.T) {
	t.Parallel()
	client, source := luatomictest.Client(t), luatomictest.Namespace(t)
	begin := func(token string) webhook.BeginState {
		out, err := webhook.Begin(t.Context(), client, webhook.BeginParams{Source: source, ID: "e", Token: token,
			Lease: time.Minute})
		require.NoError(t, err)
		return out.State
	}
	finish := func(token, answer string) bool {
		counts, err := webhook.Finish(t.Context(), client,
			webhook.FinishParams{Source: source, ID: "e", Token: token, Keep: time.Hour, Answer: []byte(answer)})
		require.NoError(t, err)
		return counts
	}
	drop := func(token string) bool {
		had, err := webhook.Drop(t.Context(), client, webhook.DropParams{Source: source, ID: "e", Token: token})
		require.NoError(t, err)
		return had
	}
	require.Equal(t, webhook.BeginStateRun, begin("first"))
	require.Equal(t, webhook.BeginStateRun, begin("first"), "its repeat")
	require.Equal(t, webhook.BeginStateBusy, begin("second"))
	require.NoError(t, client.Del(t.Context(), "webhook:{"+source+"}:e").Err()) // the lease is over
	require.Equal(t, webhook.BeginStateRun, begin("second"))
	require.False(t, finish("first", "old"))
	require.False(t, drop("first"))
	require.True(t, finish("second", "new"))
	require.True(t, finish("second", "new"), "its repeat")
	require.Equal(t, webhook.BeginStateDone, begin("third"))
}
