package lua

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/show"
)

// classify determines the outcome of a failed attempt.
//
// A command that was written and got no reply has an unknown outcome. A command that was not written was not executed.
// Server errors are matched by their first word, because the texts of Valkey and Redis differ. An error raised inside a
// script has its position at the end. An error without a position was raised before the first line, or the script
// returned it, and declares its code. The exceptions are four codes that a server raises only before a script's first
// write.
func classify(cmd *command, err error) *Error {
	e := &Error{Script: cmd.program.script.Name, Guarded: cmd.program.guarded, Err: err, Outcome: ErrOutcomeUnknown}
	var reply redis.Error
	switch {
	case cmd.program.waiting:
		if isReply(err) || isDial(err) {
			e.Err = fmt.Errorf("connection lost; before that: %w", err)
		}
	case errors.Is(err, errDigest), errors.Is(err, redis.ErrClosed), errors.Is(err, errHidden), err == errExited:
		e.Outcome = ErrNotExecuted
	case errors.As(err, &reply):
		classifyReply(cmd.program.script, cmd.program.file(), e, reply.Error())
		if !cmd.program.sent {
			e.Outcome = ErrNotExecuted // the reply was to the greeting or to CLUSTER SLOTS
		}
	default:
		e.Outcome, e.transient = ErrNotExecuted, true
	}
	if e.Outcome == ErrExecutedInPart && cmd.program.script.unwritten(e.at) {
		e.Outcome = ErrNotExecuted // there is no write that could stay
	}
	e.Err = show.Unquoted(e.Err)
	return e
}

// unwritten reports whether a script that stopped at the line has changed nothing.
func (s *Script) unwritten(line int) bool { return s.ReadOnly || 0 < line && line <= s.WritesAfter }

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

func classifyReply(s *Script, ran Text, e *Error, text string) {
	code, _, _ := strings.Cut(text, " ")
	at, inside := position(ran.SHA, text)
	e.Code, e.at = code, ran.scriptLine(at)
	e.File, e.Line = s.place(ran, at)
	switch {
	case temporary(code, inside):
		e.Outcome, e.transient = ErrNotExecuted, true
	case inside && (code == "OOM" || code == "MISCONF"):
		e.Outcome = ErrNotExecuted
	case inside:
		e.Outcome = ErrExecutedInPart
	case slices.Contains(s.Codes, code):
		e.Outcome = ErrRefused
	default:
		classifyOutside(e, text)
	}
}

// temporary reports whether another attempt can help. These words keep their meaning even if a script declares them;
// luagen warns of that (E002).
func temporary(code string, inside bool) bool {
	switch code {
	case codeReadOnly, "NOREPLICAS":
		return true
	case "NOSCRIPT", "LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "BUSY":
		return !inside
	}
	return false
}

// classifyOutside handles the errors that have no position in the script and whose code the script does not declare.
func classifyOutside(e *Error, text string) {
	switch e.Code {
	case "OOM", "MISCONF", "NOPERM", "NOAUTH", "WRONGPASS", "CROSSSLOT", "DENIED":
		e.Outcome = ErrNotExecuted
	case "ERR":
		classifyGeneral(e, text)
	case "WRONGTYPE":
		e.Outcome = ErrExecutedInPart
	default:
		e.Outcome = ErrRefused
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

// notStarted recognizes the two errors that quote the digest or the text of a script that did not run: the error of an
// old server without EVALSHA_RO, and the error of a script that does not compile. An embedded server uses the latter
// text for a failure half-way too, but adds a stack.
func notStarted(text string) bool {
	return strings.HasPrefix(text, "ERR Error compiling script") && !strings.Contains(text, "stack traceback") ||
		strings.HasPrefix(text, "ERR unknown command")
}

// behind stands between the text of an error that was raised inside a script and its position.
const behind = " script: "

// position returns the line of a script at which an error was raised, or 0, and whether it was raised inside the
// script. A server appends the position: Redis " script: <digest>, on @user_script:3." and Valkey 9 the same without
// the digest. Lua itself begins its errors with "ERR user_script:3:". A server adds nothing to an error that the script
// returns, so such a text is only data.
func position(sha, text string) (at int, inside bool) {
	if i := strings.LastIndex(text, behind); i >= 0 {
		where, named := strings.CutPrefix(text[i+len(behind):], sha+", on ")
		if n := line(where); named || where == "on @user_script:"+strconv.Itoa(n)+"." {
			at, inside = n, true
		}
	}
	if strings.HasPrefix(text, "ERR user_script:") || !inside && strings.HasPrefix(text, "ERR ") {
		at = line(text) // no script declares ERR
	}
	return at, inside
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
