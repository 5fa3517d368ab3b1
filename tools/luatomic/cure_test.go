package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Each version of the server says in its own words that a command inside a script is refused; the cure is the same. A
// command that goes on says it too.
func TestCureOfRightsThatScriptsLack(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	e := asApp(t, server, nil, "--role", "producer")
	e.with("x").run("push", "q", "--raw").exits(exitDone)
	require.Contains(t, e.run("jobs", "ls", "q").exits(exitFailed).stderr.String(), "luatomic acl prints the rights")
	e.start("consume", "q", "--", "true").shows("luatomic acl prints the rights")
	require.NotContains(t, e.run("doctor").exits(exitFailed).failed()["rpc"], "leave bus", "the first call that failed")

	e = asApp(t, server, nil, "--preloaded")
	require.NotContains(t, e.run("load").exits(exitFailed).stderr.String(), "luatomic acl", "one cure")
}

// A call that cannot join the bus says why, where it is known.
func TestCallThatCannotJoinSaysWhy(t *testing.T) {
	t.Parallel()
	e := &env{t: t, url: luatomictest.StartServer(t, "--maxmemory", "1").URL()}
	c := e.run("rpc", "call", "m", "--timeout", "5s").exits(exitFailed)
	require.Contains(t, c.stdout.String(), "raise its maxmemory")
	require.NotContains(t, c.stdout.String(), "SUBSCRIBE")
}

// A server that has renamed a command says so in other words inside a script than outside.
func TestCureOfACommandThatIsRenamed(t *testing.T) {
	t.Parallel()
	const cure = "use a server that has all commands"
	server := luatomictest.StartServer(t, "--rename-command", "PUBSUB", "OTHER", "--rename-command", "SCAN", "ANOTHER")
	e := &env{t: t, url: server.URL()}
	require.Contains(t, e.run("locks", "ls").exits(exitFailed).stderr.String(), cure)
	require.Contains(t, e.run("doctor").exits(exitFailed).checks()["rpc"]["cure"], cure)
	require.Contains(t, reachCure("ERR unknown command 'PING', with args beginning with: "), cure)
}

// An error that a caller of the command line reads names no method of Go alone.
func TestErrorsAreForCallersOfTheCommandLine(t *testing.T) {
	t.Parallel()
	e := &env{t: t, url: luatomictest.StartServer(t).URL()}
	c := e.run("rpc", "call", "m", "--connection", "c", "--timeout", "5s")
	require.Contains(t, c.stdout.String(), "no node owns it; bind it on a node first")
	c = e.run("locks", "release", "x", "--kind", "semaphore", "--token", "t").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "no such token; luatomic locks show lists those that are held")
}

// reply is an error of the server.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// What CMD or a program prints has no cure of the server's.
func TestCureIsOfReplies(t *testing.T) {
	t.Parallel()
	require.Equal(t, "name the master", cureOf(fmt.Errorf("push: %w", reply("READONLY You can't write to a replica."))))
	before := &lua.Error{Outcome: lua.ErrOutcomeUnknown, Err: context.DeadlineExceeded,
		Detail: send.BeforeResent + "READONLY You can't write to a replica."}
	require.Equal(t, "name the master", cureOf(before), "the last attempt had no reply, the one before had")
	require.Contains(t, cureOf(reply("ERR ACL failure in script: User app has no permissions")), "luatomic acl")
	busy := reply("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.")
	require.Contains(t, cureOf(busy), "wait for it")
	require.Equal(t, cureOf(busy), reachCure(busy.Error()), "the server is there")
	require.Contains(t, cureOf(reply("MISCONF Errors writing to the AOF file: No space left on device")),
		"then, if a snapshot failed, run BGSAVE", "after an error of the file the server takes writes by itself")
	require.Empty(t, cureOf(errors.New("exit code 1: NOPERM OOM command not allowed when > 'maxmemory' READONLY x")))
}

// A server that cannot be used has one cure, that of the first connection.
func TestAServerThatCannotBeUsedHasOneCure(t *testing.T) {
	t.Parallel()
	for _, why := range []reply{
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"NOPERM User app has no permissions to run the 'ping' command",
		"ERR unknown command 'PING', with args beginning with: ",
	} {
		err := unreachable("redis://127.0.0.1:6379", why)
		require.Contains(t, err.Error(), reachCure(why.Error()))
		require.Equal(t, err.Error(), withCure(err))
	}
}

// Where one connection is served and the next is ended, the server has as many clients as it takes. It says so, unless
// the connection broke before that was read.
func TestCureOfTooManyClients(t *testing.T) {
	t.Parallel()
	full := reply("ERR max number of clients reached")
	require.Equal(t, tooManyClients, cureOf(full))
	for _, err := range []error{
		full, io.EOF, &net.OpError{Op: "write", Err: syscall.EPIPE}, &net.OpError{Op: "read", Err: syscall.ECONNRESET},
	} {
		require.Contains(t, (&probeUse{}).cure(fmt.Errorf("subscribe: %w", err)), tooManyClients, err)
		require.Contains(t, reachCure(err.Error()), "maxclients", err)
	}
	require.NotContains(t, (&probeUse{}).cure(errors.New("no message is received")), tooManyClients)
}

// An error of the library names a field of its options. Here that is a flag, which the command has.
func TestErrorsNameTheFlag(t *testing.T) {
	t.Parallel()
	for err, c := range map[error]struct{ flag, command string }{
		queue.ErrLeaseLost: {"raise --lease", "consume"},
		wire.ErrForged:     {"give all nodes the same --keys", "rpc serve"},
	} {
		text := oneLine(fmt.Errorf("wrapped: %w", err))
		require.Contains(t, text, c.flag)
		require.NotContains(t, text, "Options")
		words := strings.Fields(c.flag)
		help := shared(t).run(append(strings.Fields(c.command), "-h")...).exits(exitDone)
		require.Contains(t, help.stdout.String(), words[len(words)-1]+" ")
	}
}
