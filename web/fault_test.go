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
		"The server is a replica, which takes no changes.": {
			reply("READONLY You can't write against a read only replica."),
			&lua.Error{Outcome: lua.ErrNotExecuted, Err: context.DeadlineExceeded, Detail: "READONLY You can't write."},
		},
		"The Redis user of this page may not do that.": {
			reply("NOPERM this user has no permissions"), reply("NOAUTH Authentication required."),
			reply("WRONGPASS invalid"),
			reply("ERR ACL failure in script: User may not"),
			reply("ERR The user executing the script can't run this command"),
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
