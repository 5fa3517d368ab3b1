package lua_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// countSource counts its executions in its key: a second run shows.
const countSource = `local counter = KEYS[1]
return redis.call('INCR', counter)
`

// newScript declares a script as generated code does, where the digest is a constant.
func newScript(name, source string, retry lua.Retry) *lua.Script {
	return &lua.Script{Name: name, SHA: sha(source), Source: &source, Retry: retry}
}

func sha(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// coldCount returns a counting script that no server has loaded.
func coldCount(t testing.TB, retry lua.Retry) *lua.Script {
	return newScript("count", "-- "+luatomictest.Namespace(t)+"\n"+countSource, retry)
}

func newCall(s *lua.Script, keys ...string) *lua.Call {
	c := lua.NewCall(s, len(keys), 0)
	for _, key := range keys {
		c.Key("key", key)
	}
	c.EndKeys()
	return c
}

func decodeInt(r *lua.Reply) int64 { return r.Int("n") }

func runInt(ctx context.Context, c lua.Client, s *lua.Script, keys ...string) (int64, error) {
	return lua.Run(ctx, c, newCall(s, keys...), decodeInt)
}

func decodeText(r *lua.Reply) string { return r.String("text") }

// within bounds a test's calls, so that an endless retry fails instead of hanging.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

var outcomes = []error{lua.ErrNotExecuted, lua.ErrOutcomeUnknown, lua.ErrExecutedInPart, lua.ErrRefused}

// requireOutcome checks that err is of this outcome and of no other.
func requireOutcome(t testing.TB, err, want error) *lua.Error {
	t.Helper()
	require.Error(t, err)
	for _, outcome := range outcomes {
		require.Equal(t, outcome == want, errors.Is(err, outcome), "is %v: %v", outcome, err)
	}
	var e *lua.Error
	require.ErrorAs(t, err, &e)
	text := err.Error()
	at := strings.LastIndex(text, "(")
	require.True(t, at > 0 && strings.Contains(text[at:], e.Script), "the message ends with the script: %v", err)
	return e
}

func preload(t testing.TB, c lua.Client, scripts ...*lua.Script) {
	t.Helper()
	require.NoError(t, lua.Preload(within(t, 10*time.Second), c, scripts...))
}

// counted reads the count of a counting script.
func counted(t testing.TB, c redis.Cmdable, key string) int {
	t.Helper()
	n, err := c.Get(within(t, 10*time.Second), key).Int()
	if !errors.Is(err, redis.Nil) {
		require.NoError(t, err)
	}
	return n
}

// untouched returns a client for calls that must fail before any I/O.
func untouched(t testing.TB) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: "192.0.2.1:6379",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			t.Error("the client connected")
			return nil, errors.New("connected")
		}})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// as sets the user; the password is pw.
func as(user string) func(*redis.Options) {
	return func(o *redis.Options) { o.Username, o.Password = user, "pw" }
}

// afterError calls a function after each reply to the script that is an error, before the caller receives it. A
// deadline would meet an attempt on its way now and then, whose outcome is unknown.
func afterError(s *lua.Script, do func()) *lab.Around {
	return &lab.Around{Sha: s.SHA, Do: func(run func() error) error {
		err := run()
		if err != nil {
			do()
		}
		return err
	}}
}
