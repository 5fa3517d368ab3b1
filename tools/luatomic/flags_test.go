package main

import (
	"flag"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// parsedWith is the error of a command line with the flag before and after the name of the command.
func parsedWith(t *testing.T, cmd *command, f *flag.Flag, value string) []error {
	t.Helper()
	words := strings.Fields(cmd.name)
	lines := [][]string{
		append(slices.Clone(words), dashes(f.Name), value), append(slices.Clone(words), dashes(f.Name)+"="+value),
	}
	if isGlobal(f.Name) {
		lines = append(lines, append([]string{dashes(f.Name), value}, words...))
	}
	var errs []error
	for _, line := range lines {
		_, _, err := parseCommand(line, io.Discard, io.Discard)
		errs = append(errs, err)
	}
	return errs
}

// The variable of a script that is not set is no flag that is left out.
func TestAnEmptyValueIsNoFlagThatIsLeftOut(t *testing.T) {
	t.Parallel()
	var free []string
	for _, cmd := range commands() {
		cmd.flagSet().VisitAll(func(f *flag.Flag) {
			if isSwitch(f) {
				return
			}
			for _, err := range parsedWith(t, cmd, f, "") {
				if slices.Contains(emptyMeans, f.Name) {
					free = append(free, f.Name)
					require.NotContains(t, errorText(err), "is empty", "%s %s", cmd.name, f.Name)
					continue
				}
				var wrong *usageError
				require.ErrorAs(t, err, &wrong, "%s %s", cmd.name, f.Name)
				require.Contains(t, err.Error(), dashes(f.Name)+" is empty; leave it out, or write "+dashes(f.Name)+" ")
				require.Contains(t, err.Error(), "; is the variable set?")
			}
		})
	}
	slices.Sort(free)
	require.Equal(t, emptyMeans, slices.Compact(free), "each exception is a flag")
}

// A limit of 0 would pass for none.
func TestAZeroIsNoFlagThatIsLeftOut(t *testing.T) {
	t.Parallel()
	var found []string
	for _, cmd := range commands() {
		cmd.flagSet().VisitAll(func(f *flag.Flag) {
			if isSwitch(f) || !slices.Contains(aboveZero, f.Name) {
				return
			}
			found = append(found, f.Name)
			for _, err := range parsedWith(t, cmd, f, "0") {
				require.ErrorContains(t, err, dashes(f.Name)+" is 0; leave it out, or write more than 0")
			}
		})
	}
	slices.Sort(found)
	require.Equal(t, aboveZero, slices.Compact(found), "each name is a flag's")
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// What a safety would have refused is not done without it.
func TestASafetyThatIsEmptyRefusesTheCommand(t *testing.T) {
	t.Parallel()
	e := shared(t)
	steal := e.run("locks", "steal", "nn", "--ttl", "1m").exits(exitDone)
	require.NotEmpty(t, steal.object()["fence"])
	for _, fence := range []string{"0", ""} {
		c := e.run("locks", "release", "nn", "--fence", fence).exits(exitUsage)
		require.Contains(t, c.stderr.String(), "luatomic: locks release: --fence is ")
	}
	require.Equal(t, true, e.run("locks", "show", "nn").exits(exitDone).object()["held"])

	for _, args := range [][]string{
		{"rpc", "call", "charge", "{}", "--key", ""}, {"rpc", "call", "charge", "{}", "--to="},
		{"--redis", "", "stats", "q"}, {"push", "q", "--at", ""}, {"queue", "trim", "q", "--age", "1h", "--keep", "0"},
	} {
		stdout, stderr := said(t, exitUsage, args...)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "; leave it out, or write ", "%q", args)
	}
}
