package luatomictest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// deps returns the dependencies of packages of this module.
func deps(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-deps"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

// A module that tests with luatomictest requires nothing of testcontainers, unless it builds package container.
func TestOnlyContainerNeedsTestcontainers(t *testing.T) {
	t.Parallel()
	for _, tree := range []string{"github.com/testcontainers/", "github.com/moby/", "go.opentelemetry.io/"} {
		require.NotContains(t, deps(t, "./..."), tree)
		require.Contains(t, deps(t, "-tags=container", "./container"), tree, "a package of that name would be found")
	}
}

// The tests of this module are handed a server. One file alone starts a container, with the tag.
func TestOneTestOfThisModuleStartsAContainer(t *testing.T) {
	t.Parallel()
	var starting []string
	own := filepath.Join("..", "luatomictest")
	require.NoError(t, filepath.WalkDir("..",
		func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.IsDir() && path != ".." {
				if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
					return filepath.SkipDir // another module
				}
			}
			if err != nil || !strings.HasSuffix(path, "_test.go") || filepath.Dir(path) == own {
				return err
			}
			text, err := os.ReadFile(path)
			if strings.Contains(string(text), `luatomictest/container"`) {
				require.True(t, strings.HasPrefix(string(text), "//go:build container\n"), path)
				starting = append(starting, filepath.ToSlash(path))
			}
			return err
		}))
	require.Equal(t, []string{"../integration_test.go", "../luatomictest/container/container_test.go"}, starting)
}
