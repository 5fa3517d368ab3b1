package web

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// fault is a request that was not served: what was not possible, then the cure.
type fault struct {
	Status int    `json:"status"`
	What   string `json:"error"`
	Cure   string `json:"cure"`
	// ID is that of Options.OnError, for failures of the server.
	ID string `json:"id,omitempty"`
	// Done is how many jobs the request had changed before.
	Done int `json:"done,omitempty"`

	allow string // the methods of the address, where the request has another
}

func (f *fault) Error() string { return f.What + " " + f.Cure }

func faultf(status int, cure, format string, args ...any) *fault {
	return &fault{Status: status, What: fmt.Sprintf(format, args...), Cure: cure}
}

var errBusy = faultf(http.StatusServiceUnavailable, "Try again in a moment.",
	"%d requests wait for the server already.",
	MaxAtOnce)

// faultOf turns an error into what is shown. The texts of Redis and of the network stay here: they can name hosts, keys
// and users.
func (h *handler) faultOf(err error) *fault {
	var f *fault
	if errors.As(err, &f) {
		return f
	}
	for _, known := range knownFaults {
		if known.is(err) {
			shown := known.fault
			return h.numbered(&shown, err)
		}
	}
	return h.numbered(faultf(http.StatusBadGateway, "The log of this page has the reason.",
		"The server refused the request."), err)
}

// faultsOf turns the errors of the rows of a page into what is shown. Rows of one error, as those of a server that does
// not answer, have one fault and one number.
func (h *handler) faultsOf(errs []error) []*fault {
	faults, known := make([]*fault, len(errs)), make(map[string]*fault)
	for i, err := range errs {
		if err == nil {
			continue
		}
		if faults[i] = known[err.Error()]; faults[i] == nil {
			faults[i] = h.faultOf(err)
			known[err.Error()] = faults[i]
		}
	}
	return faults
}

// noneServed is the fault of a page none of whose rows a server serves. A row that cannot be read for another reason
// says so in its place.
func noneServed(rows []*fault) error {
	for _, f := range rows {
		if f == nil || f.Status != http.StatusServiceUnavailable {
			return nil
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return rows[0]
}

// errPanic is the error of a request whose code has panicked, as a callback of the Options can.
var errPanic = errors.New("panic")

// caught calls f, and returns its panic as an error.
func caught(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack())
		}
	}()
	return f()
}

// numbered gives the fault the number under which the error is logged. What the request is to blame for has none: a
// reader that has left, too.
func (h *handler) numbered(f *fault, err error) *fault {
	if f.Status == http.StatusBadRequest || errors.Is(err, context.Canceled) {
		return f
	}
	f.ID = rand.Text()[:8]
	if h.opts.OnError != nil {
		_ = caught(func() error { // in a goroutine that reads a part of a page, a panic would end the process
			h.opts.OnError(f.ID, err)
			return nil
		})
	}
	return f
}

var knownFaults = []struct {
	is func(error) bool
	fault
}{
	{matches(lua.ErrBadName), fault{Status: http.StatusBadRequest,
		What: "A name in the address is missing or not valid.",
		Cure: "Names have 1 to 128 bytes, neither braces nor control characters."}},
	{matches(lua.ErrOutOfRange, lua.ErrTooLarge), fault{Status: http.StatusBadRequest,
		What: "A number in the request is out of range.", Cure: "Go back and correct it."}},
	{matches(errPanic), fault{Status: http.StatusInternalServerError, What: "The page has failed, and not the server.",
		Cure: "The log of this page has the reason and the place."}},
	{matches(lua.ErrNotLoaded), fault{Status: http.StatusServiceUnavailable,
		What: "The server does not have the scripts, and the Redis user of this page may not load them.",
		Cure: "Run luatomic load as a user that may, after each start and failover of the server; then reload."}},
	{repliedWith("NOAUTH", "WRONGPASS"), fault{Status: http.StatusServiceUnavailable,
		What: "The server does not accept the name and password of this page.",
		Cure: "Give this page those that are valid now."}},
	{refused, fault{Status: http.StatusForbidden, What: "The Redis user of this page may not do that.",
		Cure: "Give it the rights that luatomic acl --role page prints for this prefix; if this page makes changes, " +
			"those of luatomic acl --audit."}},
	{matches(lua.ErrWrongType, lock.ErrNotALock), fault{Status: http.StatusConflict,
		What: "A key of that name holds something else.",
		Cure: "Another program or version uses it: the log of this page has the key."}},
	{repliedWith("OOM"), fault{Status: http.StatusInsufficientStorage, What: "The server is full.",
		Cure: "Raise its maxmemory, or delete what is not needed."}},
	{repliedWith("READONLY"), fault{Status: http.StatusServiceUnavailable,
		What: "The server is a replica, which takes no changes.", Cure: "Give this page the master."}},
	{repliedWith("MISCONF"), fault{Status: http.StatusInsufficientStorage,
		What: "The server cannot save its data, and takes no changes.",
		Cure: "Free its disk; then, if a snapshot failed, run BGSAVE."}},
	{repliedWith("NOREPLICAS"), fault{Status: http.StatusServiceUnavailable,
		What: "The server has too few replicas, and takes no changes.",
		Cure: "Start them, or lower its min-replicas-to-write."}},
	{repliedWith("BUSY"), fault{Status: http.StatusServiceUnavailable,
		What: "A script or function holds up the server.",
		Cure: "Wait for it, or end it by SCRIPT KILL or FUNCTION KILL if it has written nothing; then reload."}},
	{matches(queue.ErrLayout), fault{Status: http.StatusConflict, What: "The queue has a later layout.",
		Cure: "Use the page of a later version."}},
	{matches(context.DeadlineExceeded, context.Canceled), fault{Status: http.StatusServiceUnavailable,
		What: "The server does not answer.", Cure: "Reload when it does."}},
	{unreachable, fault{Status: http.StatusServiceUnavailable, What: "The server cannot be reached.",
		Cure: "Start it, or check the address that the page was given; then reload."}},
}

func matches(targets ...error) func(error) bool {
	return func(err error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
}

// replyOf is what the server itself answered last, or "". The rest of an error's text has names of queues and jobs,
// which say nothing of its kind.
func replyOf(err error) string {
	var reply redis.Error
	var call *lua.Error // its detail is the reply to the attempt before one that had none
	switch {
	case errors.As(err, &reply):
		return reply.Error()
	case errors.As(err, &call):
		return strings.TrimPrefix(call.Detail, send.BeforeResent)
	}
	return ""
}

// repliedWith reports a reply that begins with one of the codes.
func repliedWith(codes ...string) func(error) bool {
	return func(err error) bool {
		code, _, _ := strings.Cut(replyOf(err), " ")
		return slices.Contains(codes, code)
	}
}

// refused reports a reply of the server's access rules.
func refused(err error) bool {
	text := replyOf(err)
	return strings.Contains(text, "NOPERM") || strings.Contains(text, "ACL failure") ||
		strings.Contains(text, "The user executing the script can't")
}

// unreachable reports an error without an answer of a server that is ready.
func unreachable(err error) bool {
	return repliedWith("CLUSTERDOWN")(err) || servers.Away(err)
}
