package web_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/web"
)

// reply is an error of the server.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// What a failure is follows from its kind and from the server's reply, not from names in its text.
func TestFaultsAreToldByTheirKind(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	for what, errs := range map[string][]error{
		"The server is full.": {reply("OOM command not allowed when used memory > 'maxmemory'.")},
		"The server cannot save its data, and takes no changes.": {
			reply("MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk."),
		},
		"The server has too few replicas, and takes no changes.": {
			reply("NOREPLICAS Not enough good replicas to write."),
		},
		"A script or function holds up the server.": {reply("BUSY Redis is busy running a script.")},
		"The server is a replica, which takes no changes.": {
			reply("READONLY You can't write against a read only replica."),
			&lua.Error{Outcome: lua.ErrNotExecuted, Err: context.DeadlineExceeded,
				Detail: send.BeforeResent + "READONLY You can't write."},
		},
		"The Redis user of this page may not do that.": {
			reply("NOPERM this user has no permissions"),
			reply("ERR ACL failure in script: User may not"),
			reply("ERR The user executing the script can't run this command"),
		},
		"The server does not accept the name and password of this page.": {
			reply("NOAUTH Authentication required."), reply("WRONGPASS invalid username-password pair"),
		},
		"The server does not answer.": {context.DeadlineExceeded, context.Canceled},
		"The server cannot be reached.": {
			dial, &lua.Error{Outcome: lua.ErrOutcomeUnknown, Err: dial}, io.EOF, io.ErrUnexpectedEOF,
			redis.ErrPoolTimeout,
			redis.ErrPoolExhausted, reply("LOADING Redis is loading"), reply("MASTERDOWN Link"),
			reply("CLUSTERDOWN Hash slot"),
		},
		"The server refused the request.": {
			reply("ERR queue dial EOF pool LOADING READONLY OOM"),
			errors.New("job \"LOADING NOPERM carpool EOF dial 1\""),
		},
	} {
		for _, err := range errs {
			require.Equal(t, what, web.FaultOf(fmt.Errorf("queue %q: %w", "NOPERM OOM pool", err)), "%v", err)
		}
	}
}

// pings answers each command of a client with an error.
type pings struct{ err error }

func (pings) DialHook(next redis.DialHook) redis.DialHook       { return next }
func (p pings) ProcessHook(redis.ProcessHook) redis.ProcessHook { return p.answer }
func (pings) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (p pings) answer(_ context.Context, cmd redis.Cmder) error {
	cmd.SetErr(p.err)
	return p.err
}

// A server that cannot save its data refuses PING, and is there: what a search has found is shown.
func TestASearchOfAServerThatCannotSaveIsShown(t *testing.T) {
	t.Parallel()
	for answer, ok := range map[error]bool{
		reply("MISCONF Redis is configured to save RDB snapshots."): true,
		reply("LOADING Redis is loading"):                           false, io.EOF: false,
	} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
		client.AddHook(pings{answer})
		partial, err := web.SearchEnded(t.Context(), client)
		require.True(t, partial)
		require.Equal(t, ok, err == nil, "%v", err)
		require.NoError(t, client.Close())
	}
}
