package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

// What others can write: a text with sequences that a terminal obeys, in both forms, with line ends and with a
// character that turns a text around; and what of it a name can have.
const (
	evilText = "evil\x1b]0;title\a\x1b[2J\r\nforged\u202e\u009b31m\x9b31m\x00\x7f\b"
	evilArg  = "evil\x1b]0;title\a\x1b[2J\r\nforged\u202e\u009b31m\x9b31m\x7f\b"
	evilName = "evil\u202e\u009b31m\x9b31m"
	evilJSON = "evil\u202e\u009b31m"
)

// hostile is a server on which all that a program can write is evil.
type hostile struct {
	*env
	redis *redis.Client
}

// shows runs the program on a terminal, which gets nothing to obey, and shows what else is evil.
func (h *hostile) shows(code int, args ...string) {
	h.t.Helper()
	p := h.onTerminal(200, 50, args...)
	p.ends(code)
	p.sound()
}

// until is shows for a command that goes on until Ctrl-C.
func (h *hostile) until(code int, text string, args ...string) {
	h.t.Helper()
	p := h.onTerminal(200, 50, args...)
	p.seen(text)
	p.sound()
	p.types("\x03")
	p.ends(code)
}

// sound waits until the text is shown, and checks that it is a part of a line.
func (p *pty) sound() {
	p.t.Helper()
	p.seen("evil")
	require.NotRegexp(p.t, regexp.MustCompile(`(?m)^\s?forged`), p.picture.String())
}

// silent runs a command that prints nothing of others.
func silent(args ...string) func(*hostile) {
	return func(h *hostile) {
		p := h.onTerminal(200, 50, args...)
		p.wait()
		<-p.read
		require.NoError(h.t, p.picture.err())
	}
}

// job is a job of that state, all of which is evil.
func (h *hostile) job(state queue.State) {
	h.t.Helper()
	j := queue.Job{ID: evilName, Body: []byte(evilText), Kind: evilName, Headers: map[string]string{evilName: evilText}}
	if state == queue.Scheduled {
		j.Delay = time.Hour
	}
	h.push(evilName, j)
	if state == queue.Ready || state == queue.Scheduled {
		return
	}
	taken, err := h.queue(evilName).Take(h.t.Context(), 1)
	require.NoError(h.t, err)
	require.Len(h.t, taken.Deliveries, 1)
	if state == queue.Dead {
		require.NoError(h.t, taken.Deliveries[0].Bury(h.t.Context(), evilText))
	}
}

func (h *hostile) evilLocker() *lock.Locker {
	return lock.New(h.redis, &lock.Options{Prefix: h.prefix, Note: evilText, TTL: time.Hour})
}

// held takes a lock of each kind.
func (h *hostile) held() (token string) {
	h.t.Helper()
	l, ctx := h.evilLocker(), h.t.Context()
	h.t.Cleanup(func() { _ = l.Close() })
	_, plainErr := l.Try(ctx, evilName)
	lease, rwErr := l.RW(evilName).Try(ctx)
	_, semaphoreErr := l.Semaphore(evilName, 2).Try(ctx, 1)
	require.NoError(h.t, errors.Join(plainErr, rwErr, semaphoreErr))
	return lease.Token()
}

// node answers calls until the test ends: with an evil result, or with an evil error.
func (h *hostile) node() {
	h.t.Helper()
	bus, err := rpc.New(h.redis, evilName, &rpc.Options{
		Prefix: h.prefix, Node: evilName, Codec: opaque{}, Lease: time.Minute,
	})
	require.NoError(h.t, err)
	info := &rpc.ServeOptions{Description: evilText, Version: evilText}
	answer := func(_ context.Context, in []byte) ([]byte, error) {
		if string(in) == "null" {
			return nil, &rpc.RemoteError{Code: evilText, Message: evilText}
		}
		return []byte(`"` + evilJSON + "\x9b\u2028\""), nil
	}
	require.NoError(h.t, rpc.NewMethod[[]byte, []byte](evilName).Serve(bus, answer, info))
	parts := func(_ context.Context, in []byte, send func([]byte) error) error {
		part, err := answer(h.t.Context(), in)
		if err != nil {
			return err
		}
		return send(part)
	}
	require.NoError(h.t, rpc.NewStreamMethod[[]byte, []byte](evilName+"s").Serve(bus, parts))
	h.t.Cleanup(runBus(bus))
	require.NoError(h.t, bus.Ready(h.t.Context()))
}

// sidekiq writes jobs of that dialect, of which nothing was checked, to each place.
func (h *hostile) sidekiq() {
	h.t.Helper()
	ctx := h.t.Context()
	payload := func(jid string) string {
		text := `"evil\u001b]0;t\u0007\u001b[2J\r\nforged\u202e` + "\u009b31m" + `\u0000"`
		return `{"class":` + text + `,"queue":"` + evilJSON + `","jid":"` + evilJSON + jid + `","args":[` + text +
			`],"bid":"b","evil\u001b[2J":1,"retry_count":1,"error_class":` + text + `,"error_message":` + text + `}`
	}
	require.NoError(h.t, errors.Join(
		h.redis.SAdd(ctx, h.prefix+"queues", evilJSON, evilText).Err(),
		h.redis.LPush(ctx, h.prefix+"queue:"+evilJSON, payload("1"), evilText).Err(),
		h.redis.ZAdd(ctx, h.prefix+"schedule", redis.Z{Score: 4e9, Member: payload("2")}).Err(),
		h.redis.ZAdd(ctx, h.prefix+"retry", redis.Z{Score: 1, Member: evilText}).Err(),
		h.redis.ZAdd(ctx, h.prefix+"dead", redis.Z{Score: 1, Member: payload("3")}).Err(),
		h.redis.SAdd(ctx, h.prefix+"processes", "x").Err(),
		h.redis.HSet(ctx, h.prefix+"x", "info", `{"version":"evil\u001b[2J\u202e\nforged"}`).Err(),
	))
}

// file is a file of that text.
func (h *hostile) file(text string) string {
	name := filepath.Join(h.t.TempDir(), "evil")
	require.NoError(h.t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// web changes an evil queue by the page, and calls the page by an evil name.
func (h *hostile) web() {
	h.job(queue.Dead)
	p := h.onTerminal(200, 50, "web", "--listen", "127.0.0.1:0", "--write")
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`)
	p.seen("/\"}")
	base := address.FindString(p.picture.String())
	for _, name := range []string{evilName, evilText} {
		done, err := http.PostForm(base+"queue/settings?name="+url.QueryEscape(name), url.Values{"verb": {"pause"}})
		require.NoError(h.t, err)
		require.NoError(h.t, done.Body.Close())
	}
	p.seen("pause of")
	p.sound()
	p.types("\x03")
	p.ends(exitInterrupted)
}

// Nothing that others have written reaches a terminal as something that it obeys, whichever command shows it.
func TestTerminalsGetNothingToObey(t *testing.T) {
	t.Parallel()
	for name, runs := range hostileCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs(&hostile{shared(t), luatomictest.Client(t)})
		})
	}
}

// A new command has a case, too.
func TestEachCommandHasAHostileCase(t *testing.T) {
	t.Parallel()
	for _, c := range commands() {
		require.Contains(t, hostileCases, c.name, "say in hostileCases what it shows of others, or that it is silent")
		fs := c.flagSet()
		sidekiq := fs.Lookup("dialect") != nil && fs.Set("dialect", "sidekiq7") == nil
		_, found := hostileCases[c.name+", sidekiq"]
		require.Equal(t, sidekiq, found, "%s: a case for the dialects of Sidekiq", c.name)
	}
	for name := range hostileCases {
		name, _, _ = strings.Cut(name, ",")
		_, _, err := findCommand(strings.Fields(name))
		require.NoError(t, err, fmt.Sprint("a case of no command: ", name))
	}
}
