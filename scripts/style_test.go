package scripts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// file is one Lua file of the module, line by line.
type file struct {
	path  string
	lines []string
}

// read returns the files of some folders.
func read(t *testing.T, patterns ...string) []file {
	t.Helper()
	var files []file
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			files = append(files, file{path, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")})
		}
	}
	require.NotEmpty(t, files)
	return files
}

// all are the scripts of the module: those of this folder and those of the dialects.
func all(t *testing.T) []file { return read(t, "*.lua", "../compat/*/internal/script/*.lua") }

// header counts the lines of the header.
func (f *file) header() int {
	for i, line := range f.lines {
		if !strings.HasPrefix(line, "---") {
			return i
		}
	}
	return len(f.lines)
}

// own are the lines of the body, without the text of fragments.
func (f *file) own() []string {
	var own []string
	inside := false
	for _, line := range f.lines[f.header():] {
		text := strings.TrimSpace(line)
		inside = inside && text != "-->"
		if !inside {
			own = append(own, line)
		}
		inside = inside || strings.HasPrefix(text, "--< ")
	}
	return own
}

func TestLinesFitTheScreen(t *testing.T) {
	t.Parallel()
	const columns = 120
	for _, f := range append(all(t), read(t, "part/*.lua", "../compat/*/internal/script/part/*.lua")...) {
		for i, line := range f.lines {
			require.LessOrEqual(t, len(line), columns, "%s:%d: a tag goes on on the next line, a statement, too",
				f.path, i+1)
		}
	}
}

var localFunction = regexp.MustCompile(`^\s*local function (\w+)|^\s*local (\w+) = function`)

// What two scripts need is a fragment.
func TestNoFunctionIsWrittenTwice(t *testing.T) {
	t.Parallel()
	where := map[string]string{}
	for _, f := range append(read(t, "*.lua"), read(t, "part/*.lua")...) {
		for _, line := range f.own() {
			m := localFunction.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			name := m[1] + m[2]
			require.Empty(t, where[name], "%s is in %s, too: make it a fragment, or give it another name", name, f.path)
			where[name] = f.path
		}
	}
	require.NotEmpty(t, where)
}

// A script has to be read as a whole.
func TestBodiesAreShort(t *testing.T) {
	t.Parallel()
	const long, tooLong = 60, 100
	for _, f := range append(all(t), read(t, "part/*.lua", "../compat/*/internal/script/part/*.lua")...) {
		n := len(f.own())
		require.LessOrEqual(t, n, tooLong, "%s: split it into fragments", f.path)
		reason := strings.Contains(strings.Join(f.lines[:f.header()], "\n"), "\n--- Long because ")
		require.Equal(t, n > long, reason, "%s: %d lines; above %d the header says: Long because ...", f.path, n, long)
	}
}

// The clock is read, and the record of a lock taken apart and put together, in one way each. The guard stands alone, so
// that users can copy it.
func TestOneClockAndOneRecord(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"redis.call('TIME')":       {"guard.lua", "part/now_ms.lua", "part/now_us.lua"},
		"(%d+) ([012]) (%S+)":      {"part/lock_read.lua"},
		".. ' ' .. sign .. ' ' ..": {"part/lock_record.lua"},
	} {
		var where []string
		for _, f := range append(read(t, "*.lua"), read(t, "part/*.lua")...) {
			if slices.ContainsFunc(f.own(), func(line string) bool { return strings.Contains(line, text) }) {
				where = append(where, filepath.ToSlash(f.path))
			}
		}
		require.Equal(t, want, where, text)
	}
}

// A record is written by its writer alone, but for the acquire of a lock that nobody waits for. So is its life, or a
// void token would end with a short lease.
func TestRecordsOfLocksComeFromTheirWriter(t *testing.T) {
	t.Parallel()
	for _, f := range append(read(t, "lock_*.lua"), read(t, "part/lock_*.lua")...) {
		for _, line := range f.own() {
			if strings.Contains(line, "'SET', lock, ") {
				require.Regexp(t, `'SET', lock, (lock_record\(|'2 ' \.\. fence \.\. free, )`, line, f.path)
				require.Equal(t, f.path == filepath.Join("part", "lock_write.lua") || f.path == "lock_try.lua",
					strings.Contains(line, "'PX'"), "%s: %s", f.path, line)
			}
		}
	}
}
