// Package examples_test holds the scripts of the examples to what the documentation says of them.
package examples_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func luagen(t *testing.T, args ...string) string {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "go", append([]string{"tool", "luagen"}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", said)
	return string(said)
}

var scripts = []string{"ratelimit", "inventory", "webhook"}

func TestScriptsOfTheExamples(t *testing.T) {
	t.Parallel()
	for _, dir := range scripts {
		luagen(t, "-check", "-strict", dir)
	}
	said := luagen(t, "prove", "-n", "60", "ratelimit", "inventory/reserve.lua", "webhook") // settle has a test of its own
	require.Contains(t, said, "inventory/reserve.lua: holds; calls 60")
	require.Contains(t, said, "webhook/finish.lua: holds; calls 60")
}

// What their tests do not run is what the generated functions refuse before.
func TestExamplesAreCovered(t *testing.T) {
	t.Parallel()
	for _, dir := range scripts {
		luagen(t, "cover", "-min", "95", "-scripts", dir, "go", "test", "./"+dir)
	}
}
