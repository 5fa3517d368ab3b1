package main

import (
	"flag"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// completed is what bash offers for the last word of a line.
func completed(t *testing.T, script, line string) []string {
	t.Helper()
	words := strings.Split(line, " ")
	cmd := exec.Command("bash", append([]string{"-c", script + `
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _luatomic; echo "${COMPREPLY[*]}"`, "bash"}, words...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.Fields(string(out))
}

func TestCompletionInBash(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash")
	}
	script := (&env{t: t}).run("completion", "bash").exits(exitDone).stdout.String()
	for line, want := range map[string]string{
		"luatomic pro":                          "promote",
		"luatomic --redis redis://h locks s":    "show steal",
		"luatomic locks show x --w":             "--watch",
		"luatomic push push --sk":               "--skip",
		"luatomic lock x --wait 1s -- env --fi": "",
		"luatomic rpc serve m --conn":           "--connection",
		"luatomic stats q --ta":                 "--tag",
		"luatomic he":                           "help",
	} {
		require.Equal(t, strings.Fields(want), completed(t, script, line), line)
	}
}

// Every command and every flag is in the script of each shell.
func TestCompletionHasAll(t *testing.T) {
	t.Parallel()
	for shell := range shellScripts {
		script := completion(shell)
		require.NotContains(t, script, "%!", shell)
		for _, c := range commands() {
			require.Contains(t, script, fmt.Sprintf("%q", c.name), shell)
			c.flagSet().VisitAll(func(f *flag.Flag) { require.Contains(t, script, dashes(f.Name), shell) })
		}
	}
	c := (&env{t: t}).run("completion", "csh").exits(exitUsage)
	require.Contains(t, c.stderr.String(), "write bash, zsh or fish")
}
