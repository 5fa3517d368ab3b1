package main

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// A run that Ctrl-C, a closed terminal or a closed output ends stops what it has started, says so, and leaves no folder
// behind.
func TestInterruptedRunsLeaveNothing(t *testing.T) {
	temp, file := t.TempDir(), filepath.Join(t.TempDir(), "count.lua")
	t.Setenv("TMPDIR", temp)
	writeFile(t, file, countScript)
	for _, name := range []string{"INT", "TERM", "HUP", "PIPE"} {
		if name == "HUP" && signal.Ignored(syscall.SIGHUP) {
			continue // the tests run under nohup, and so does luagen
		}
		interrupt := []string{"sh", "-c", "kill -" + name + " $PPID; exec sleep 600"}
		for _, words := range [][]string{
			append([]string{"mutate", file}, interrupt...),
			append([]string{"cover", "-scripts", filepath.Dir(file)}, interrupt...),
			append([]string{"trace"}, interrupt...),
			{"prove", file},
		} {
			serverThat(t, "kill -"+name+" $PPID\nexec sleep 600\n")
			code, stdout, stderr := command(words...)
			require.Equal(t, 1, code, words)
			require.Equal(t, "luagen "+words[0]+": interrupted\n", stderr)
			require.NotContains(t, stdout, "miss")
			left, err := os.ReadDir(temp)
			require.NoError(t, err)
			require.Empty(t, left, words)
		}
	}
}

// A file that cannot be written is refused before the run, and no folder is made for it.
func TestOutputsWithoutAFolder(t *testing.T) {
	t.Parallel()
	dir, ran := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	writeFile(t, filepath.Join(dir, "count.lua"), countScript)
	out := filepath.Join(dir, "none", "file")
	for _, args := range [][]string{
		{"cover", "-scripts", dir, "-o", out, "touch", ran}, {"trace", "-o", out, "touch", ran},
		{"doc", "-o", out, dir}, {"editor", "-o", out},
	} {
		code, _, stderr := command(args...)
		require.Equal(t, 1, code, args)
		require.Contains(t, stderr, "there is no folder "+filepath.Dir(out)+": make it first, or name another")
		require.NoDirExists(t, filepath.Dir(out), args)
		require.NoFileExists(t, ran, args)
	}
}

func TestTraceNamesScriptsThatDidNotRun(t *testing.T) {
	code, stdout, stderr := command("trace", "-only", "count,take", os.Args[0], "-test.run", "TestCoverChild")
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "count KEYS {")
	require.Contains(t, stderr,
		"luagen trace: no script of the name \"take\" ran: -only takes names as in take of take.lua\n")
	code, _, stderr = command("trace", "true")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no script ran, or the test programs do not import luatomictest")
}

// Scripts of the same bytes are one to the server, and files of their own to their owner.
func TestCoverOfScriptsThatAreTheSame(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one", "count.lua"), filepath.Join(dir, "two", "count.lua")
	writeFile(t, one, countScript)
	writeFile(t, two, countScript)
	code, stdout, stderr := command("cover", "-scripts", dir+","+dir, os.Args[0], "-test.run", "TestCoverChild")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "  75.0 %  "+one+"  not run: line 10\n  75.0 %  "+two+
		"  not run: line 10\n  75.0 %  of 8 statements in 2 scripts\n")
}

// A run of prove that SIGKILL ends, and cannot stop anything, leaves no server and no folder either.
func TestAKilledProveLeavesNoServer(t *testing.T) {
	if dir := os.Getenv("LUAGEN_CHILD_PROVES"); dir != "" {
		os.Exit(run([]string{"prove", "-n", "1000000", dir}, os.Stdout, os.Stderr))
	}
	temp, scripts, own := t.TempDir(), t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(scripts, "lock_peek.lua"), goodScript)
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not on PATH: install one")
	}
	pidFile := filepath.Join(own, "pid")
	serverThat(t, "echo $$ > "+pidFile+"\nexec "+binary+" \"$@\"\n")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestAKilledProveLeavesNoServer$")
	child.Env = append(os.Environ(), "LUAGEN_CHILD_PROVES="+scripts, "TMPDIR="+temp)
	require.NoError(t, child.Start())
	var pid int
	luatomictest.Eventually(t, time.Minute, "prove calls its server", func() bool {
		text, _ := os.ReadFile(pidFile)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0 && calls(temp) > 100
	})
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
	luatomictest.Eventually(t, time.Minute, "no server, no folder", func() bool {
		left, err := os.ReadDir(temp)
		return err == nil && len(left) == 0 && !isRunning(pid)
	})
}

func isRunning(pid int) bool {
	process, err := os.FindProcess(pid)
	return err == nil && process.Signal(syscall.Signal(0)) == nil
}

// calls counts the commands that the server with a socket below a folder has run.
func calls(temp string) (n int) {
	sockets, _ := filepath.Glob(filepath.Join(temp, "*", "*.sock"))
	for _, socket := range sockets {
		client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
		info := client.InfoMap(context.Background(), "stats").Val()
		n, _ = strconv.Atoi(info["Stats"]["total_commands_processed"])
		_ = client.Close()
	}
	return n
}
