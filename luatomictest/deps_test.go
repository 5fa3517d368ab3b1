package luatomictest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// deps returns the dependencies of a package of this module.
func deps(t *testing.T, pattern string) string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", pattern)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

// A module that tests with luatomictest requires nothing of testcontainers, unless it imports package container.
func TestOnlyContainerNeedsTestcontainers(t *testing.T) {
	t.Parallel()
	for _, tree := range []string{"github.com/testcontainers/", "github.com/moby/", "go.opentelemetry.io/"} {
		require.NotContains(t, deps(t, "."), tree)
		require.Contains(t, deps(t, "./container"), tree, "it still names a package that would be found")
	}
}

// A package of this module whose tests take the shared server, and that passes no source to Main, fails where
// LUATOMIC_REQUIRE is docker. This test finds it without a Docker engine.
func TestThisModulesTestsTakeContainers(t *testing.T) {
	t.Parallel()
	own, passing, taking := filepath.Join("..", "luatomictest"), map[string]bool{}, map[string]string{}
	require.NoError(t, filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && path != ".." {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return filepath.SkipDir // another module
			}
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") || filepath.Dir(path) == own {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "luatomictest.Main(m, container.Start)") {
			passing[filepath.Dir(path)] = true
		}
		if sharedServer.Match(text) {
			taking[filepath.Dir(path)] = path
		}
		require.False(t, strings.Contains(string(text), "luatomictest.Main(m)"), "%s passes no source", path)
		return err
	}))
	require.Greater(t, len(taking), 5, "the packages with tests against a server were searched: %v", taking)
	for folder, file := range taking {
		require.True(t, passing[folder], "%s takes a server; no TestMain of its package calls %s", file,
			"luatomictest.Main(m, container.Start)")
	}
}

// sharedServer finds a test that takes the server of Main.
var sharedServer = regexp.MustCompile(`luatomictest\.(Client|URL|Open)\(`)
