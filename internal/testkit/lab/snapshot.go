package lab

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// FailSnapshot has a snapshot of the server fail: a folder has the name of its file. A server that makes snapshots by
// itself refuses PING and all writes from then on, until BGSAVE succeeds, which it can after unblock.
func FailSnapshot(t testing.TB, client *redis.Client) (unblock func()) {
	t.Helper()
	file := filepath.Join(client.ConfigGet(t.Context(), "dir").Val()["dir"], "dump.rdb")
	require.NoError(t, os.Mkdir(file, 0o700))
	require.NoError(t, client.BgSave(t.Context()).Err())
	luatomictest.Eventually(t, time.Minute, "the snapshot fails", func() bool {
		return strings.Contains(client.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
	})
	return func() { require.NoError(t, os.Remove(file)) }
}

// BytesRead runs a script and returns how many bytes of strings its commands have returned to Lua. It measures what a
// script reads to throw away, which no reply shows.
func BytesRead(ctx context.Context, c redis.Scripter, s *lua.Script, keys []string, args ...any) (int64, error) {
	const count = `
local read = 0
local function sum(reply)
  if type(reply) == 'table' then
    for i = 1, #reply do sum(reply[i]) end
  elseif type(reply) == 'string' then
    read = read + #reply
  end
  return reply
end
local server = redis
local redis = setmetatable({call = function(...) return sum(server.call(...)) end}, {__index = server})
local function script()
`
	return c.Eval(ctx, count+Text(c, s)+"\nend\nscript()\nreturn read", keys, args...).Int64()
}

// Text returns what a test sends with EVAL or SCRIPT LOAD for a script: its text, or the one that luagen cover and
// mutate run in its place, which reports to the server of the client what it runs. A test that sends the script's own
// text would not be seen by them, nor miss a guard.
func Text(client any, s *lua.Script) string {
	if send.SeeClient != nil {
		send.SeeClient(client)
	}
	return text(s)
}

func text(s *lua.Script) string {
	if send.RewriteScript == nil {
		return *s.Source
	}
	return send.RewriteScript(s.Name, s.SHA, *s.Source, s.Place)
}

// Digest returns the digest that a client sends for a script, that of Text.
func Digest(s *lua.Script) string {
	sum := sha1.Sum([]byte(text(s)))
	return hex.EncodeToString(sum[:])
}

// Sent reports whether a command runs a script by its digest. A text that reports what it runs is sent with EVALSHA,
// also where the script itself only reads.
func Sent(s *lua.Script) func(args []string) bool {
	if s.ReadOnly && send.RewriteScript == nil {
		return luatomictest.Command("EVALSHA_RO", Digest(s))
	}
	return luatomictest.Command("EVALSHA", Digest(s))
}

// Unmarked skips a test that counts what is sent, or sees all that is published, where luagen cover or mutate run the
// tests: a script reports then what it runs, by PUBLISH.
func Unmarked(t *testing.T) {
	t.Helper()
	if send.RewriteScript != nil {
		t.Skip("the scripts report what they run")
	}
}
