package lua

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// classify says what is known about a failed attempt.
//
// Server errors are matched by their first word only: Valkey's texts differ
// from Redis' own. An error raised inside a script carries its digest or the
// words "user_script"; one that has neither came before the first line. The
// exceptions are the four codes that a server gives only before a script's
// first write, wherever it raises them.
func classify(s *Script, err error) *Error {
	e := &Error{Script: s.Name, Err: err, Outcome: ErrOutcomeUnknown}
	var reply redis.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// go-redis does not say whether the command was already sent.
	case errors.As(err, &reply):
		classifyReply(s, e, reply.Error())
	case errors.Is(err, redis.ErrClosed):
		e.Outcome = ErrNotExecuted
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), isDial(err):
		e.Outcome, e.transient = ErrNotExecuted, true
	}
	return e
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func classifyReply(s *Script, e *Error, text string) {
	code, _, _ := strings.Cut(text, " ")
	e.Code, e.Line = code, line(text)
	inside := strings.Contains(text, "user_script") || strings.Contains(text, s.SHA)
	switch code {
	case "READONLY", "NOREPLICAS":
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

// classifyGeneral sorts the errors without a code of their own.
func classifyGeneral(e *Error, text string) {
	switch {
	case strings.HasPrefix(text, "ERR max number of clients"):
		e.Outcome, e.transient = ErrNotExecuted, true
	case strings.HasPrefix(text, "ERR unknown command"):
		e.Outcome = ErrNotExecuted
	case strings.Contains(text, "WRONGTYPE"):
		// An embedded server wraps what a command inside a script said.
		e.Outcome, e.Code = ErrExecutedInPart, "WRONGTYPE"
	default:
		e.Outcome = ErrExecutedInPart
	}
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
