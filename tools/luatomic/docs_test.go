package main

import (
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

func page(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", path))
	require.NoError(t, err)
	return string(text)
}

// Each command that the on-call page tells a reader to type exists, with its flags and arguments.
func TestCommandsOfTheOnCallPageParse(t *testing.T) {
	t.Parallel()
	found := regexp.MustCompile("`luatomic ([^`]+)`").FindAllStringSubmatch(page(t, "docs/on-call.md"), -1)
	require.Greater(t, len(found), 20)
	for _, m := range found {
		// What stands for the reader's own is a number, a command or a name.
		line := regexp.MustCompile(` N\b`).ReplaceAllString(m[1], " 1")
		line = strings.NewReplacer("CMD", "true", "'", "").Replace(line)
		_, _, err := parseCommand(strings.Fields(line), io.Discard, io.Discard)
		require.NoError(t, err, m[0])
	}
	_, _, err := parseCommand(strings.Fields("locks show NAME --knd rw"), io.Discard, io.Discard)
	require.Error(t, err)
}

// Each command of a unit or manifest is one that luatomic runs.
func TestCommandsOfTheDeployPageParse(t *testing.T) {
	t.Parallel()
	plain := strings.NewReplacer("[luatomic, ", "luatomic ", ",", "", `"`, "", "]", "")
	text := plain.Replace(page(t, "docs/deploy.md"))
	found := regexp.MustCompile(`(?m)luatomic (consume .* -- \S+)$`).FindAllStringSubmatch(text, -1)
	require.Len(t, found, 4)
	for _, m := range found {
		_, _, err := parseCommand(strings.Fields(m[1]), io.Discard, io.Discard)
		require.NotErrorAs(t, err, new(*usageError), m[0])
	}
}

// The page names each command in its table, and each flag.
func TestThePageHasAllCommands(t *testing.T) {
	t.Parallel()
	text := page(t, "docs/cli.md")
	for _, c := range commands() {
		require.Regexp(t, "(?m)^\\|.*`"+c.name+"[ `]", text)
		c.flagSet().VisitAll(func(f *flag.Flag) {
			require.Regexp(t, "[ `(]"+dashes(f.Name)+"[^a-z-]", text, c.name)
		})
	}
}

// transcript is a block of the page: commands behind "$ ", each followed by what it prints.
type transcript struct {
	command string
	prints  []string
}

// transcripts reads the blocks of a page that begin with a command of luatomic.
func transcripts(text string) (all []transcript) {
	inside := false
	for line := range strings.Lines(text) {
		shown, indented := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "    ")
		command, typed := strings.CutPrefix(shown, "$ ")
		switch {
		case !indented:
			inside = false
		case typed:
			inside = true
			all = append(all, transcript{command: command})
		case inside:
			last := &all[len(all)-1]
			last.prints = append(last.prints, shown)
		}
	}
	return all
}

// varies are the parts of an output that another run has otherwise, and what stands for each.
var varies = []struct{ pattern, name string }{
	{`\b\d{16}\b`, "FENCE"},
	{`\b\d{13}\b`, "TIME"},
	{`"(remaining_ms|oldest_ms)":\d+`, `"$1":NUMBER`},
	{`\b(\d+(\.\d+)?(ms|µs|s))+\b`, "DURATION"},
	{`\b[A-Z2-7]{16}\.\d+(:\d+)?`, "TOKEN"},
	{`web-1\.[a-z2-7]{16}`, "NODE"},
	{`127\.0\.0\.1:\d+`, "ADDRESS"},
	{`(Redis|Valkey) \d+\.\d+\.\d+`, "VERSION"},
	{`\d+ of at most \d+ connections`, "CONNECTIONS"},
}

func masked(line string) string {
	for _, v := range varies {
		line = regexp.MustCompile(v.pattern).ReplaceAllString(line, v.name)
	}
	return line
}

// The transcripts of the page are what the commands print, run one after the other against one server.
func TestTranscriptsOfThePage(t *testing.T) {
	t.Parallel()
	shell := newShell(t)
	all := transcripts(page(t, "docs/cli.md"))
	require.Greater(t, len(all), 15)
	for _, tr := range all {
		shell.plays(tr)
	}
}

// shell runs the lines of transcripts, in which luatomic is this test binary.
type shell struct {
	t   *testing.T
	env []string
	dir string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	dir := shortDir(t)
	self, err := filepath.Abs(os.Args[0])
	require.NoError(t, err)
	script := "#!/bin/sh\n" + asCLI + "=1 exec '" + self + "' \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "luatomic"), []byte(script), 0o700)) //nolint:gosec // it is run
	server := luatomictest.StartServer(t)
	env := append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "REDIS_URL="+server.URL(), "TMPDIR="+dir)
	return &shell{t: t, env: env, dir: dir}
}

func (s *shell) command(line string, out io.Writer) *exec.Cmd {
	cmd := exec.Command("sh", "-c", line)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = s.env, s.dir, out, out
	ownGroup(cmd)
	return cmd
}

// plays runs a transcript's line. One that ends with & goes on until the test ends.
func (s *shell) plays(tr transcript) {
	s.t.Helper()
	var out output
	line, behind := strings.CutSuffix(tr.command, " &")
	cmd := s.command(line, &out)
	require.NoError(s.t, cmd.Start(), tr.command)
	if behind {
		s.t.Cleanup(func() {
			signalGroup(cmd, syscall.SIGKILL)
			_ = cmd.Wait()
		})
		luatomictest.Eventually(s.t, within, tr.command, func() bool { return s.printed(tr, &out) == nil })
		return
	}
	_ = cmd.Wait() // a transcript shows the exit code where it matters
	require.NoError(s.t, s.printed(tr, &out), tr.command)
}

// printed compares the output with the page, of which a line "..." stands for any number of lines.
func (s *shell) printed(tr transcript, out *output) error {
	got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for i, want := range tr.prints {
		switch {
		case want == "...":
			return nil
		case i >= len(got) || masked(want) != masked(got[i]):
			return errors.New("the page has:\n" + strings.Join(tr.prints, "\n") + "\nprinted is:\n" + out.String())
		}
	}
	if len(got) > max(len(tr.prints), 1) {
		return errors.New("more than on the page is printed:\n" + out.String())
	}
	return nil
}
