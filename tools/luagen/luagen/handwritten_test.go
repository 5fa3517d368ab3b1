package luagen_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// Names of the package's own Go files are taken: those that generated Go declares, too, are findings.
func TestNamesOfThePackageAreTaken(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"package gen\n\ntype TakeParams struct{}\n": "the script makes the Go name " +
			"TakeParams, which is declared in own.go",
		"package gen\n\nfunc Take() {}\n": "the script makes the Go name Take, " +
			"which is declared in own.go",
		"package gen\n\nvar a, TakeSHA = 1, 2\n": "the script makes the Go name TakeSHA, " +
			"which is declared in own.go",
		"package gen\n\nvar lua = 1\n": "generated Go imports lua, which is " +
			"declared in own.go",
		"package gen\n\ntype errors []error\n": "generated Go imports errors, which is " +
			"declared in own.go",
		"package gen\n\nvar time, embed = 1, 2\n": "",
		"package gen\n\nconst FakeCalls = 1\n": "-interface makes the Go name FakeCalls, " +
			"which is declared in own.go",
		"package gen\n\ntype x struct{}\n\nfunc (x) Take() {}\n": "",
		"package gen\n\nfunc init() {}\nvar _ = 1\n":             "",
		"package gen\n\nfunc takeSource() {}\n": "the script makes the Go name takeSource, which is " +
			"declared in own.go",
		"package gen_test\n\nfunc Take() {}\n": "",
	} {
		cfg := project(t, map[string]string{"scripts/take.lua": fmt.Sprintf(script, "Take")})
		cfg.Calls = true
		require.NoError(t, os.MkdirAll(cfg.Out, 0o755))
		name := "own.go"
		if strings.HasPrefix(text, "package gen_test") {
			name = "own_test.go"
		}
		require.NoError(t, os.WriteFile(filepath.Join(cfg.Out, name), []byte(text), 0o600))
		res, err := luagen.Generate(cfg)
		require.NoError(t, err)
		if want == "" {
			require.Empty(t, res.Found, text)
			require.NotEmpty(t, res.Changes)
			continue
		}
		require.Len(t, res.Found, 1, text)
		require.Equal(t, "H010", res.Found[0].Rule)
		require.Equal(t, "take.lua", res.Found[0].File)
		require.Equal(t, want, res.Found[0].Message)
		require.Empty(t, res.Changes)
	}
}

// Two folders of scripts may share one of Go, but not a name in it.
func TestNamesOfAnotherFolderOfScriptsAreTaken(t *testing.T) {
	t.Parallel()
	cfg := project(t, map[string]string{"scripts/take.lua": fmt.Sprintf(script, "Take")})
	res, err := luagen.Generate(cfg)
	require.NoError(t, err)
	require.NoError(t, luagen.Apply(res.Changes))
	other := cfg
	other.Scripts = filepath.Join(filepath.Dir(cfg.Scripts), "other")
	require.NoError(t, os.MkdirAll(other.Scripts, 0o755))
	for name, want := range map[string]int{"TakeParams": 1, "Give": 0} {
		path := filepath.Join(other.Scripts, map[string]string{"TakeParams": "take_params.lua",
			"Give": "give.lua"}[name])
		require.NoError(t, os.WriteFile(path, []byte(fmt.Sprintf(script, name)), 0o600))
		res, err := luagen.Generate(other)
		require.NoError(t, err)
		require.Len(t, res.Found, want, "%v", res.Found)
		if want > 0 {
			require.Equal(t, "H010", res.Found[0].Rule)
			require.Equal(t, "the script makes the Go name TakeParams, which is declared in take.lua.go",
				res.Found[0].Message)
		}
		require.NoError(t, os.Remove(path))
	}
}
