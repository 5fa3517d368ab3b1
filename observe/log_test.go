package observe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/canary"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/observe"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
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

// A number without its unit is read wrongly: each duration is in seconds, and its name says so.
func TestLogWritesDurationsInSeconds(t *testing.T) {
	t.Parallel()
	var out lines
	log := observe.NewLog(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	log.Job(queue.Event{
		Outcome: queue.OutcomeRetried,
		Wait:    1500 * time.Millisecond, Run: 20 * time.Microsecond, Retry: 2 * time.Second,
	})
	log.Lock(lock.Event{Kind: lock.EventAcquired, Wait: time.Minute})
	log.Lock(lock.Event{Kind: lock.EventLost, Held: time.Second / 4})
	_ = log.Served(t.Context(), rpc.CallInfo{}, func(context.Context) error { return nil })
	text := out.String()
	for _, want := range []string{
		`"wait_seconds":1.5,"run_seconds":0.00002`, `"retry_seconds":2}`, `"wait_seconds":60}`, `"held_seconds":0.25}`,
		`"took_seconds":0`,
	} {
		require.Contains(t, text, want)
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

// A call whose handler does not return is logged and measured once, with the code that its caller gets.
func TestHandlersThatDoNotReturnAreSeen(t *testing.T) {
	t.Parallel()
	var out lines
	r := newRecorder()
	log, m := observe.NewLog(slog.New(slog.NewTextHandler(&out, nil))), observe.NewMeter(r, nil)
	call := rpc.CallInfo{Method: "look_up", Attempt: 1}
	logged := func(ctx context.Context) error {
		return log.Served(ctx, call, func(context.Context) error { panic("order 7") })
	}
	require.PanicsWithValue(t, "order 7", func() { _ = m.Served(t.Context(), call, logged) })
	require.Equal(t, map[string]int{"rpc.server.call.duration luatomic look_up internal": 1}, r.count)
	require.Equal(t, 1, strings.Count(out.String(), `level=WARN msg="call served" method=look_up`), out.String())
	require.Contains(t, out.String(), "error_type=internal")
	require.NotContains(t, out.String(), "order 7")
}

// A call that does not return, because an inner interceptor or a codec panics, is logged and measured once.
func TestCallsThatDoNotReturnAreSeen(t *testing.T) {
	t.Parallel()
	var out lines
	r := newRecorder()
	log, m := observe.NewLog(slog.New(slog.NewTextHandler(&out, nil))), observe.NewMeter(r, nil)
	call := &rpc.Outgoing{Method: "look_up"}
	logged := func(ctx context.Context) error {
		return log.Called(ctx, call, func(context.Context) error { panic("order 7") })
	}
	require.PanicsWithValue(t, "order 7", func() { _ = m.Called(t.Context(), call, logged) })
	require.Equal(t, map[string]int{"rpc.client.call.duration luatomic look_up error": 1}, r.count)
	require.Equal(t, 1, strings.Count(out.String(), `level=WARN msg="call made" method=look_up`), out.String())
	require.Contains(t, out.String(), "error_type=error")
	require.NotContains(t, out.String(), "order 7")
}

// An error of a job has one line, that of its event; other errors have theirs, bounded.
func TestLogOfErrors(t *testing.T) {
	t.Parallel()
	var out lines
	log := observe.NewLog(slog.New(slog.NewTextHandler(&out, nil)))
	log.Error(&queue.JobError{Queue: "mail", Err: errors.New("smtp")})
	require.Empty(t, out.String())
	log.Job(queue.Event{Queue: "mail", Tag: "shop-7", Outcome: queue.OutcomeDead})
	require.Contains(t, out.String(), "tag=shop-7")
	require.NotContains(t, out.String(), "stack=")
	out.text.Reset()
	log.Job(queue.Event{Queue: "mail", Outcome: queue.OutcomeRetried, Err: fmt.Errorf("mail: %w",
		&lua.PanicError{Value: "oh", Stack: bytes.Repeat([]byte("at line 7 "), 10_000)})})
	require.Regexp(t, `stack="at line 7 .*\.\.\." error_type=error error="mail: luatomic: the handler panicked: oh"`,
		out.String())
	require.Less(t, len(out.String()), 9000)
	out.text.Reset()
	panicked := &lua.PanicError{Method: "look_up", Value: "oh", Stack: bytes.Repeat([]byte("at line 7 "), 10_000)}
	log.Error(fmt.Errorf("%w\n%s", panicked, panicked.Stack))
	require.Greater(t, len(out.String()), 8000)
	require.Less(t, len(out.String()), 9000)
	out.text.Reset()
	log.Error(errors.New(strings.Repeat("x", 1<<20)))
	require.Contains(t, out.String(), `level=WARN msg="background work failed"`)
	require.Less(t, len(out.String()), 2048)
}

// A snooze is no failure: neither in a line nor in a measurement.
func TestSnoozeIsNoError(t *testing.T) {
	t.Parallel()
	var out lines
	r := newRecorder()
	log, m := observe.NewLog(slog.New(slog.NewTextHandler(&out, nil))), observe.NewMeter(r, nil)
	for outcome, failed := range map[queue.Outcome]string{queue.OutcomeRetried: "", queue.OutcomeLost: "lease_lost"} {
		e := queue.Event{Queue: string(outcome), Outcome: outcome, Run: time.Second}
		e.Err = fmt.Errorf("later: %w", queue.Snooze(time.Minute))
		log.Job(e)
		m.Job(e)
		series := " luatomic " + string(outcome) + "  process " + failed
		require.Equal(t, 1, r.count["messaging.client.consumed.messages"+series], r.count)
		require.Equal(t, 1, r.count["messaging.process.duration"+series], r.count)
	}
	require.Contains(t, out.String(), `level=INFO msg="job is delivered again"`)
	require.NotContains(t, out.String(), "error")
}

func TestEachPassesToAll(t *testing.T) {
	t.Parallel()
	require.Nil(t, observe.Each[int](nil, nil))
	var got []int
	f := func(n int) { got = append(got, n) }
	observe.Each(f, nil, func(n int) { f(-n) })(3)
	require.Equal(t, []int{3, -3}, got)
}

// A text that is cut ends with a whole character.
func TestLogCutsAnErrorBetweenCharacters(t *testing.T) {
	t.Parallel()
	var out lines
	log := observe.NewLog(slog.New(slog.NewTextHandler(&out, nil)))
	log.Error(errors.New("x" + strings.Repeat("é", 1000)))
	require.Contains(t, out.String(), "é...")
	require.NotContains(t, out.String(), `\x`)
}
