package luagen_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// calls.go comes and goes with the option, and a file of that name that luagen did not write is left alone.
func TestInterfaceIsAnOption(t *testing.T) {
	t.Parallel()
	cfg := project(t, map[string]string{"scripts/peek.lua": fmt.Sprintf(script, "Peek")})
	path := filepath.Join(cfg.Out, "calls.go")
	run(t, cfg)
	require.NoFileExists(t, path)
	cfg.Calls = true
	run(t, cfg)
	require.FileExists(t, path)
	require.Empty(t, run(t, cfg))
	cfg.Calls = false
	run(t, cfg)
	require.NoFileExists(t, path)
	require.NoError(t, os.WriteFile(path, []byte("package gen\n"), 0o600))
	run(t, cfg)
	require.FileExists(t, path)
	cfg.Calls = true
	_, err := luagen.Generate(cfg)
	require.ErrorContains(t, err, "is in the way")
}

// A script that makes a name of calls.go is named.
func TestInterfaceNamesAreTaken(t *testing.T) {
	t.Parallel()
	cfg := project(t, map[string]string{"scripts/calls.lua": fmt.Sprintf(script, "Calls")})
	cfg.Calls = true
	res, err := luagen.Generate(cfg)
	require.NoError(t, err)
	require.Len(t, res.Found, 1)
	require.Equal(t, "H010", res.Found[0].Rule)
	require.Empty(t, res.Changes)
}
