// Package examples_test holds the scripts of the examples to what the documentation says of them.
package examples_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
)

func luagen(t *testing.T, args ...string) string {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "go", append([]string{"tool", "luagen"}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", said)
	return string(said)
}

var scripts = []string{"ratelimit", "inventory", "webhook"}

func TestScriptsOfTheExamples(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	for _, dir := range scripts {
		luagen(t, "-check", "-strict", dir)
	}
	said := luagen(t, "prove", "-n", "60", "ratelimit", "inventory/reserve.lua") // settle has a test of its own
	require.Contains(t, said, "inventory/reserve.lua: holds; calls 60")
	// Most drawn calls of begin meet the mark of a drop.
	require.Contains(t, luagen(t, "prove", "-n", "600", "webhook"), "webhook/begin.lua: holds; calls 600")
}

// What their tests do not run is what the generated functions refuse before.
func TestExamplesAreCovered(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	for _, dir := range scripts {
		luagen(t, "cover", "-min", "95", "-scripts", dir, "go", "test", "./"+dir)
	}
}

// A program without a server ends soon, and its error says what to do: where nothing listens, and where nothing
// answers.
func TestProgramsEndWithoutAServer(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = mute.Close() })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	bin := t.TempDir()
	said, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin,
		"./calls", "./guarded", "./mailqueue", "./nightly", "./workers").CombinedOutput()
	require.NoError(t, err, "%s", said)
	for _, words := range [][]string{{"calls", "serve"}, {"calls", "order-1", "apple", "1"},
		{"guarded", "page", "text"},
		{"mailqueue"}, {"nightly"}, {"workers"}} {
		endsWithout(t, closed, bin, words)
		endsWithout(t, mute, bin, words)
		refusesURL(t, bin, words)
	}
}

func endsWithout(t *testing.T, server net.Listener, bin string, words []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	program := exec.CommandContext(ctx, filepath.Join(bin, words[0]), words[1:]...)
	program.Env = append(os.Environ(), "REDIS_URL=redis://"+server.Addr().String(), "LISTEN=127.0.0.1:0")
	start := time.Now()
	said, err := program.CombinedOutput()
	require.Error(t, err, words)
	require.Contains(t, string(said), "cannot use REDIS_URL, "+server.Addr().String(), words)
	require.Contains(t, string(said), "start a server there, or name another\n", words)
	require.Less(t, time.Since(start), 5*time.Second, "%v: by its own bound it is less than 2 s", words)
}

// The error of a URL that cannot be read says what to do, and nothing of the password in it.
func refusesURL(t *testing.T, bin string, words []string) {
	t.Helper()
	program := exec.CommandContext(t.Context(), filepath.Join(bin, words[0]), words[1:]...)
	program.Env = append(os.Environ(), "REDIS_URL=redis://:se/cret@localhost:6379", "LISTEN=127.0.0.1:0")
	said, err := program.CombinedOutput()
	require.Error(t, err, words)
	require.Contains(t, string(said), "cannot read REDIS_URL; write redis://", words)
	require.NotContains(t, string(said), "cret", words)
}
