package lua

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/unquoted"
)

// classify determines the outcome of a failed attempt.
//
// A command that was written and got no reply is unknown; one that was not written was not executed. Server errors
// are matched by their first word only: Valkey's texts differ from Redis' own. An error raised inside a script
// carries its digest or the words "user_script"; an error with neither was raised before the first line. The
// exceptions are four codes that a server raises only before a script's first write.
func classify(cmd *command, err error) *Error {
	e := &Error{Script: cmd.program.script.Name, Guarded: cmd.program.guarded, Err: err, Outcome: ErrOutcomeUnknown}
	var reply redis.Error
	switch {
	case cmd.program.waiting:
		if isReply(err) || isDial(err) {
			e.Err = fmt.Errorf("connection lost; before that: %w", err)
		}
	case errors.Is(err, errDigest), errors.Is(err, redis.ErrClosed):
		e.Outcome = ErrNotExecuted
	case errors.As(err, &reply):
		classifyReply(cmd.program.file(), e, reply.Error())
		if !cmd.program.sent {
			e.Outcome = ErrNotExecuted // the reply was to the greeting or to CLUSTER SLOTS
		}
	default:
		e.Outcome, e.transient = ErrNotExecuted, true
	}
	if e.Outcome == ErrExecutedInPart && cmd.program.script.ReadOnly {
		e.Outcome = ErrNotExecuted // there is no write that could stay
	}
	e.Err = unquoted.Error(e.Err)
	return e
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// isReply reports whether err is a server's reply.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

func classifyReply(ran Text, e *Error, text string) {
	code, _, _ := strings.Cut(text, " ")
	e.Code, e.Line = code, ran.scriptLine(line(text))
	inside := strings.Contains(text, "user_script") || strings.Contains(text, ran.SHA)
	if notStarted(text) {
		inside = false
	}
	switch code {
	case codeReadOnly, "NOREPLICAS":
		e.Outcome, e.transient = ErrNotExecuted, true
		return
	case "OOM", "MISCONF":
		e.Outcome = ErrNotExecuted
		return
	}
	if inside {
		e.Outcome = ErrExecutedInPart
		return
	}
	switch code {
	case "NOSCRIPT", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "BUSY":
		e.Outcome, e.transient = ErrNotExecuted, true
	case "NOPERM", "NOAUTH", "WRONGPASS", "CROSSSLOT", "DENIED":
		e.Outcome = ErrNotExecuted
	case "ERR":
		classifyGeneral(e, text)
	default:
		e.Outcome = ErrRefused
		if code == "WRONGTYPE" {
			e.Outcome = ErrExecutedInPart
		}
	}
}

// classifyGeneral handles the errors with the general code ERR.
func classifyGeneral(e *Error, text string) {
	switch {
	case strings.HasPrefix(text, "ERR max number of clients"):
		e.Outcome, e.transient = ErrNotExecuted, true
	case notStarted(text):
		e.Outcome = ErrNotExecuted
	case strings.Contains(text, "WRONGTYPE"):
		// An embedded server wraps the error of a command inside a script.
		e.Outcome, e.Code = ErrExecutedInPart, "WRONGTYPE"
	default:
		e.Outcome = ErrExecutedInPart
	}
}

// notStarted recognizes the two errors that quote the digest or the text of a script that did not run: that of an old
// server without EVALSHA_RO, and that of a script that does not compile. An embedded server reports a failure
// half-way with the latter text, but with a stack.
func notStarted(text string) bool {
	return strings.HasPrefix(text, "ERR Error compiling script") && !strings.Contains(text, "stack traceback") ||
		strings.HasPrefix(text, "ERR unknown command") && !strings.Contains(text, "user_script")
}

// line finds the number after "user_script:".
func line(text string) int {
	_, after, ok := strings.Cut(text, "user_script:")
	if !ok {
		return 0
	}
	end := 0
	for end < len(after) && after[end] >= '0' && after[end] <= '9' {
		end++
	}
	n, _ := strconv.Atoi(after[:end])
	return n
}
