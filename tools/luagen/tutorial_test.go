package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	block     = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```\n")
	failpoint = regexp.MustCompile(`: ERR failpoint .*`)
	fileName  = regexp.MustCompile("`(stock/[a-z_]+\\.[a-z]+)`")
)

// The tutorial, word by word: its blocks are files or commands, and what it prints is what they say.
func TestTutorial(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/luagen-tutorial.md")
	require.NoError(t, err)
	dir := userModule(t)
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	writeFile(t, filepath.Join(dir, "go.mod"), strings.Replace(string(gomod),
		"\ntool github.com/luatomic/luatomic/tools/luagen\n", "\n", 1))
	luagen := sync.OnceValue(func() string { return strings.TrimSpace(goTool(t, dir, "tool", "-n", "luagen")) })
	file, at := "", 0
	for _, m := range block.FindAllStringSubmatchIndex(string(page), -1) {
		for _, name := range fileName.FindAllStringSubmatch(string(page[at:m[0]]), -1) {
			file = name[1]
		}
		language, text := string(page[m[2]:m[3]]), string(page[m[4]:m[5]])
		at = m[1]
		switch {
		case language == "":
			runTutorial(t, dir, text, luagen)
		case strings.HasPrefix(text, "\t"): // more lines for the last function of the test
			have, err := os.ReadFile(filepath.Join(dir, "stock", "take_test.go"))
			require.NoError(t, err)
			writeFile(t, filepath.Join(dir, "stock", "take_test.go"),
				strings.TrimSuffix(string(have), "}\n")+text+"}\n")
		case language == "lua":
			writeFile(t, filepath.Join(dir, "stock", "take.lua"), text)
		default:
			writeFile(t, filepath.Join(dir, filepath.FromSlash(file)), text)
		}
	}
}

// runTutorial runs the lines with a $ and looks for the others in what they print, each as a whole line. A report of a
// broken promise goes on behind what the page shows of it, see failpoint.
func runTutorial(t *testing.T, dir, text string, luagen func() string) {
	t.Helper()
	said := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		words, isCommand := strings.CutPrefix(line, "$ ")
		if !isCommand {
			require.Contains(t, strings.Split(failpoint.ReplaceAllString(said, ""), "\n"), line)
			continue
		}
		fields := strings.Fields(words)
		switch {
		case fields[1] == "get": // as the command does, without a network
			fields = []string{"go", "mod", "edit", "-tool=" + fields[3]}
		case fields[1] == "tool": // go tool takes half a second of CPU each time to find it
			fields = append([]string{luagen()}, fields[3:]...)
		}
		cmd := exec.CommandContext(t.Context(), fields[0], fields[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), goFlags+" -vet=off", "GOWORK=off", "LUATOMIC_REQUIRE=")
		out, err := cmd.CombinedOutput()
		said = string(out)
		if last := strings.HasSuffix(text, line+"\n"); last { // what prints nothing on the page does not fail
			require.NoError(t, err, "%s\n%s", line, said)
		}
	}
}
