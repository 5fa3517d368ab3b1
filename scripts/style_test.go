package scripts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// file is one script of the module, line by line.
type file struct {
	path  string
	lines []string
}

// all are the scripts of the module: those of this folder and those of the dialects.
func all(t *testing.T) []file {
	t.Helper()
	var files []file
	for _, pattern := range []string{"*.lua", "../compat/*/internal/script/*.lua"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, paths, pattern)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			files = append(files, file{path, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")})
		}
	}
	return files
}

// header counts the lines of the header.
func (f *file) header() int {
	for i, line := range f.lines {
		if !strings.HasPrefix(line, "---") {
			return i
		}
	}
	return len(f.lines)
}

const columns = 120

func TestHeadersFitTheScreen(t *testing.T) {
	t.Parallel()
	for _, f := range all(t) {
		if strings.HasPrefix(f.path, "lock_") || strings.HasPrefix(f.path, "sem_") {
			continue
		}
		for i, line := range f.lines[:f.header()] {
			require.LessOrEqual(t, len(line), columns, "%s:%d: continue the tag on the next line", f.path, i+1)
		}
	}
}
