package webhook_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/examples/webhook"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/luatomictest/container"
)

func TestMain(m *testing.M) { luatomictest.Main(m, container.Start) }

func TestAnEventIsHandledOnce(t *testing.T) {
	t.Parallel()
	client, source := luatomictest.Client(t), luatomictest.Namespace(t)
	handled := 0
	handler := webhook.Handle(client, source, func(id string, body []byte) ([]byte, error) {
		handled++
		return []byte(id + " " + string(body)), nil
	})
	deliver := func(id string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("paid"))
		r.Header.Set("Event-Id", id)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	for range 3 {
		require.Equal(t, "e1 paid", deliver("e1").Body.String())
	}
	require.Equal(t, 1, handled)
	require.Equal(t, http.StatusBadRequest, deliver("").Code)

	_, err := webhook.Begin(t.Context(), client, webhook.BeginParams{Source: source, ID: "e2", Token: "other", Lease: time.Minute})
	require.NoError(t, err)
	require.Equal(t, http.StatusConflict, deliver("e2").Code)
	require.Equal(t, 1, handled)
}

// An attempt whose lease was over has no say any more.
func TestTheLaterAttemptAnswers(t *testing.T) {
	t.Parallel()
	client, source := luatomictest.Client(t), luatomictest.Namespace(t)
	begin := func(token string) webhook.BeginState {
		out, err := webhook.Begin(t.Context(), client, webhook.BeginParams{Source: source, ID: "e", Token: token, Lease: time.Minute})
		require.NoError(t, err)
		return out.State
	}
	finish := func(token, answer string) bool {
		counts, err := webhook.Finish(t.Context(), client,
			webhook.FinishParams{Source: source, ID: "e", Token: token, Keep: time.Hour, Answer: []byte(answer)})
		require.NoError(t, err)
		return counts
	}
	require.Equal(t, webhook.BeginStateRun, begin("first"))
	require.Equal(t, webhook.BeginStateRun, begin("first"), "its repeat")
	require.Equal(t, webhook.BeginStateBusy, begin("second"))
	require.NoError(t, client.Del(t.Context(), "webhook:{"+source+"}:e").Err()) // the lease is over
	require.Equal(t, webhook.BeginStateRun, begin("second"))
	require.False(t, finish("first", "old"))
	require.True(t, finish("second", "new"))
	require.True(t, finish("second", "new"), "its repeat")
	require.Equal(t, webhook.BeginStateDone, begin("third"))
}
