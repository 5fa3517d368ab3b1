package observe_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/canary"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/observe"
	"github.com/luatomic/luatomic/queue"
)

// lines collects what is logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func played(t *testing.T, log *observe.Log) canary.Played {
	return canary.Play(t, luatomictest.Client(t), luatomictest.Namespace(t), canary.Scene{
		Job: log.Job, Lock: log.Lock, Error: log.Error, Served: log.Served, Called: log.Called,
	})
}

// Each part of the scene has its line, and none shows a body, header, key, unique name, token or note.
func TestLogShowsWhatHappensAndNoContent(t *testing.T) {
	t.Parallel()
	var out lines
	log := observe.NewLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	secrets := played(t, log).Secrets
	text := out.String()
	for _, want := range []string{
		`level=DEBUG msg="job done"`, `job=done attempt=1 outcome=acked`, `level=INFO msg="job is delivered again"`,
		`level=ERROR msg="job is dead"`, `job=dies attempt=2 outcome=dead`, `error="smtp: 421"`, `kind=mail`,
		`error_type=held error="luatomic: lock is held: invoice:42"`,
		`msg="lock acquired" lock=invoice:42`, `msg="lock queued" lock=invoice:42 waiting=1`,
		`msg="lock released"`, `level=WARN msg="lock lost" lock=lost`, `error_type=lease_lost`,
		`level=DEBUG msg="call served" method=look_up`, `level=WARN msg="call made"`, `error_type=not_found`,
	} {
		require.Contains(t, text, want)
	}
	for _, secret := range secrets {
		require.NotContains(t, text, secret)
	}
}

// Without a logger nothing is written, and nothing fails.
func TestLogIsSilentWithoutALogger(t *testing.T) {
	var out lines
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	played(t, observe.NewLog(nil))
	require.Empty(t, out.String())
}

// An error of a job has one line, that of its event; other errors have theirs, bounded.
func TestLogOfErrors(t *testing.T) {
	t.Parallel()
	var out lines
	log := observe.NewLog(slog.New(slog.NewTextHandler(&out, nil)))
	log.Error(&queue.JobError{Queue: "mail", Err: errors.New("smtp")})
	require.Empty(t, out.String())
	log.Error(errors.New(strings.Repeat("x", 1<<20)))
	require.Contains(t, out.String(), `level=WARN msg="background work failed"`)
	require.Less(t, len(out.String()), 2048)
}

func TestEachPassesToAll(t *testing.T) {
	t.Parallel()
	require.Nil(t, observe.Each[int](nil, nil))
	var got []int
	f := func(n int) { got = append(got, n) }
	observe.Each(f, nil, func(n int) { f(-n) })(3)
	require.Equal(t, []int{3, -3}, got)
}
