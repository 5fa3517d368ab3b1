package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// outbox refuses the first attempt at each address, and all at nobody@.
type outbox struct {
	mu       sync.Mutex
	attempts map[string]int
	sent     []string
}

func (o *outbox) Send(_ context.Context, _ string, m Mail) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempts[m.To]++
	switch {
	case m.To == "nobody@example.com":
		return errNoSuchAddress
	case o.attempts[m.To] == 1:
		return errors.New("mail server busy")
	}
	o.sent = append(o.sent, m.To)
	return nil
}

// start runs the program until the test ends, and returns its address.
func start(t *testing.T, sender Sender) (url string, q *queue.Queue) {
	t.Helper()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	q, err := queue.New(client, name, nil)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		soon := func(int) time.Duration { return 10 * time.Millisecond }
		ended <- run(ctx, client, listener, config{queue: name, sender: sender, backoff: soon})
	}()
	t.Cleanup(func() {
		interrupt()
		require.NoError(t, <-ended, "Ctrl-C is no failure")
	})
	return "http://" + listener.Addr().String() + "/mails", q
}

func post(t *testing.T, url, key, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", key)
	r.Close = true
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, strings.TrimSpace(string(text))
}

func TestMailsAreRetriedAndSentOnce(t *testing.T) {
	t.Parallel()
	mailServer := &outbox{attempts: map[string]int{}}
	url, q := start(t, mailServer)
	var ids []string
	for range 3 {
		status, id := post(t, url, "welcome-ann", `{"to":"ann@example.com"}`)
		require.Equal(t, http.StatusAccepted, status)
		if ids = append(ids, id); len(ids) == 2 {
			status, _ = post(t, url, "", `{"to":"bob@example.com"}`)
			require.Equal(t, http.StatusAccepted, status)
			acked(t, q) // the third request repeats the first one after its mail was sent
		}
	}
	require.Equal(t, []string{ids[0], ids[0], ids[0]}, ids)
	acked(t, q)
	mailServer.mu.Lock()
	defer mailServer.mu.Unlock()
	require.ElementsMatch(t, []string{"ann@example.com", "bob@example.com"}, mailServer.sent)
	require.Equal(t, 2, mailServer.attempts["ann@example.com"])
}

func acked(t *testing.T, q *queue.Queue) {
	t.Helper()
	luatomictest.Eventually(t, 10*time.Second, "all mails are acked", func() bool {
		stats, err := q.Stats(t.Context())
		return err == nil && stats.Ready+stats.Scheduled+stats.Leased == 0
	})
}

func TestMailToNobodyIsDeadAtOnce(t *testing.T) {
	t.Parallel()
	mailServer := &outbox{attempts: map[string]int{}}
	url, q := start(t, mailServer)
	status, _ := post(t, url, "", `{"to":"nobody@example.com"}`)
	require.Equal(t, http.StatusAccepted, status)
	luatomictest.Eventually(t, 10*time.Second, "the job is dead", func() bool {
		stats, err := q.Stats(t.Context())
		return err == nil && stats.Dead == 1
	})
	mailServer.mu.Lock()
	defer mailServer.mu.Unlock()
	require.Equal(t, 1, mailServer.attempts["nobody@example.com"])
}

func TestWhatIsNoMailIsRefused(t *testing.T) {
	t.Parallel()
	url, q := start(t, &outbox{})
	status, answer := post(t, url, "", `{"subject":"to whom?"}`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, answer, "the body is no mail")
	status, answer = post(t, url, strings.Repeat("k", 200), `{"to":"ann@example.com"}`)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, answer, "Idempotency-Key")
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, stats.Ready+stats.Leased)
}
