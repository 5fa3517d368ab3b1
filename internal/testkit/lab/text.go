package lab

import (
	"crypto/sha1"
	"encoding/hex"
	"testing"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

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
