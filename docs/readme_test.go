package docs_test

import (
	"encoding/json"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// Somebody who reads the README to its end has read it.
func TestReadmeIsShort(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, strings.Count(read(t, "../README.md"), "\n"), 160)
}

// A visitor has two commands: one that runs the main job, one that passes the tests. CI calls both as they stand there.
func TestTheCommandsOfTheReadmeAreThoseOfCI(t *testing.T) {
	t.Parallel()
	_, block, _ := strings.Cut(read(t, "../README.md"), "```sh\n")
	block, _, _ = strings.Cut(block, "```")
	lines := strings.Split(strings.TrimSpace(block), "\n")
	require.Len(t, lines, 3, "the clone and two commands")
	require.True(t, strings.HasPrefix(lines[0], "git clone "), lines[0])
	ci := read(t, "../.ci/run")
	for _, line := range lines[1:] {
		command, about, _ := strings.Cut(line, "#")
		require.NotEmpty(t, about)
		require.Regexp(t, `(?m)^step '[^']+' `+regexp.QuoteMeta(strings.TrimSpace(command))+`( </dev/null)?$`, ci)
	}
}

// readmeAddr is the server of the programs, in whose place the test puts one of its own.
const readmeAddr = `"localhost:6379"`

// The program of the README compiles and runs as it stands, its other pieces in the place of what the program does with
// its client. They print what their Output comments say.
func TestReadmeProgramsRun(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "../README.md"), -1)
	require.Len(t, blocks, 3, "a program, a lock, a call")
	server := luatomictest.StartServer(t)
	const connected = "(&redis.Options{Addr: " + readmeAddr + "})\n"
	head, _, ok := strings.Cut(blocks[0][1], connected)
	require.True(t, ok)
	var programs []string
	for i, block := range blocks {
		formatted, err := format.Source([]byte(block[1]))
		require.NoError(t, err)
		require.Equal(t, string(formatted), block[1])
		text := block[1]
		if i > 0 {
			text = strings.Replace(head, "\t\"time\"\n", "", 1) + connected + text + "}\n"
		}
		programs = append(programs, strings.Replace(text, readmeAddr, strconv.Quote(server.Addr()), 1))
	}
	for i, path := range buildPrograms(t, programs) {
		said, err := exec.CommandContext(t.Context(), path).CombinedOutput()
		require.NoError(t, err, "%s\n%s", programs[i], said)
		require.Equal(t, outputs(programs[i]), string(said), programs[i])
	}
}

// outputs are what the lines of a program print, as the comments behind them have it.
func outputs(program string) string {
	var all strings.Builder
	for _, m := range regexp.MustCompile(`// Output: (.*)\n`).FindAllStringSubmatch(program, -1) {
		all.WriteString(m[1] + "\n")
	}
	return all.String()
}

// buildPrograms compiles programs as commands of this module, where no folder of it holds them: an overlay does.
func buildPrograms(t *testing.T, programs []string) (paths []string) {
	t.Helper()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	dir := t.TempDir()
	overlay := map[string]map[string]string{"Replace": {}}
	args := []string{"build", "-o", dir + "/", "-overlay", filepath.Join(dir, "overlay.json")}
	for i, text := range programs {
		name := "program" + strconv.Itoa(i)
		source := filepath.Join(dir, name+".go")
		require.NoError(t, os.WriteFile(source, []byte(text), 0o600))
		overlay["Replace"][filepath.Join(root, "docs", name, "main.go")] = source
		args, paths = append(args, "./docs/"+name), append(paths, filepath.Join(dir, name))
	}
	text, err := json.Marshal(overlay)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600))
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Dir = root
	said, err := build.CombinedOutput()
	require.NoError(t, err, string(said))
	return paths
}
