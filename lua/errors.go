package lua

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
)

// The four ways in which a call can fail, for errors.Is. An *Error matches
// exactly one of them.
var (
	// ErrNotExecuted reports that nothing changed: the script did not run, or it stopped at an error before its first
	// write.
	ErrNotExecuted = errors.New("not executed")
	// ErrOutcomeUnknown reports that the script was sent and no reply arrived. It ran once or not at all, or it is
	// still on its way and runs later, even after other calls. A script declared "@retry safe" may have run several
	// times, with the effect of one run.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrExecutedInPart reports that the script stopped at an error in the middle. Its earlier writes stay: Redis
	// does not roll back. The contract in the script's header states the possible effects.
	ErrExecutedInPart = errors.New("executed in part")
	// ErrRefused reports that the script itself answered with a declared error, or its guard with ErrFenced. The
	// runtime recognizes it by the first word of the error, and by the end of the text, where the server names the line
	// of an error that was raised. Data in the text does not matter.
	ErrRefused = errors.New("refused")
)

// Errors found before any I/O, or in a reply.
var (
	// ErrTooLarge reports that a call has more items or bytes than its script accepts. It is returned as a *SizeError.
	ErrTooLarge = errors.New("too large")
	// ErrOutOfRange reports that an argument is outside its declared bounds. It is returned as a *RangeError.
	ErrOutOfRange = errors.New("out of range")
	// ErrBadName reports that a name cannot be part of a key.
	ErrBadName = keys.ErrBadName
	// ErrCrossSlot reports that the keys of a call are in different slots.
	ErrCrossSlot = errors.New("keys in different cluster slots")
	// ErrBadReply reports that a reply has another shape than the header declares: the generated code does not match
	// the script on the server.
	ErrBadReply = errors.New("bad reply")
	// ErrWrongType reports that a key holds another Redis type than the script works on. It names the key and both
	// types if a search of at most one second, after the call or its batch, finds them. A key whose name continues
	// after its tag and one letter, such as {mail}:i:token, is shown as {mail}:i:*, because the rest can be a secret.
	ErrWrongType = errors.New("wrong type")
	// ErrNotLoaded reports that the server does not have the script and this user may load it neither by SCRIPT LOAD
	// nor by EVAL. Nothing changed. Another user can load it with Preload or luatomic load. It is returned as an
	// *Error.
	ErrNotLoaded = errors.New("not loaded")
	// ErrNoGuard reports that a script without a guard was called on a client of Guard.
	ErrNoGuard = errors.New("no guard")
	// ErrFenced reports that the lease that guards the call is not held: it expired, was released, or belongs to
	// another holder. It is returned as an *Error. The refused attempt changed nothing. With the outcome ErrRefused,
	// the usual one, the whole call changed nothing. With ErrOutcomeUnknown, an earlier attempt whose reply was lost
	// may have run while the lease was held.
	ErrFenced = errors.New("fenced")
	// ErrNotRun is the result of a Future whose batch has not been executed yet.
	ErrNotRun = errors.New("batch not executed yet")
)

// Error is the failure of one call.
type Error struct {
	// Script is the script's name.
	Script string
	// Guarded is set when the script ran behind its guard.
	Guarded bool
	// Outcome is one of ErrNotExecuted, ErrOutcomeUnknown, ErrExecutedInPart and ErrRefused.
	Outcome error
	// Code is the first word of the server's error, such as WRONGTYPE. It is empty without a reply.
	Code string
	// File is the source in which the script failed: that of the script, of a fragment or of the guard. It is empty
	// when unknown, and for a script without fragments that is embedded as it is.
	File string
	// Line is the line that failed, of File or else of the script. It is 0 when unknown.
	Line int
	// Tries is how often the call was sent.
	Tries int
	// Detail has more information if it is known: for WRONGTYPE the key and both types.
	Detail string
	// Err is the error that go-redis returned, without arguments of the call that the server quotes.
	Err error

	at        int // the line of the text that ran, without its guard
	transient bool
	notLoaded bool
}

// Error begins with what has become of the call and why; where in which script stands at the end.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Outcome.Error())
	if e.Tries > 1 {
		fmt.Fprintf(&b, " after %d tries", e.Tries)
	}
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	text := fmt.Sprint(e.Err)
	if e.Line > 0 { // the server names it too, with the digest of the script
		text = strings.TrimRight(lineOfServer.ReplaceAllString(text, ""), ". ")
	}
	fmt.Fprintf(&b, ": %s (%s", text, title(e.Script, e.Guarded))
	switch {
	case e.File != "":
		fmt.Fprintf(&b, " at %s:%d", e.File, e.Line)
	case e.Line > 0:
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(")")
	return b.String()
}

// lineOfServer is what a server appends to the error of a command of a script.
var lineOfServer = regexp.MustCompile(` script: (?:[0-9a-f]{40}, )?on @user_script:\d+\.?$`)

// before returns the failure as a detail for a later attempt that has no reply: it says why there was another attempt.
func (e *Error) before() string { return send.BeforeResent + e.Err.Error() }

// Unwrap makes the outcome and the cause visible to errors.Is and errors.As.
func (e *Error) Unwrap() []error { return []error{e.Outcome, e.Err} }

// fenced reports whether the guard, and not the script after it, refused.
func (e *Error) fenced() bool {
	return e.Guarded && e.Code == "FENCED" && e.Outcome != ErrExecutedInPart
}

// Is matches the error codes that a script declares, ErrWrongType, ErrFenced and ErrNotLoaded.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrWrongType:
		return e.Code == "WRONGTYPE"
	case ErrFenced:
		return e.fenced()
	case ErrNotLoaded:
		return e.notLoaded
	}
	code, ok := target.(*Code)
	return ok && e.Outcome == ErrRefused && code.Name == e.Code && code.Script == e.Script
}

// Code is an error that a script declares with @error. Generated code has one variable for each. The error of a refused
// call matches it with errors.Is.
type Code struct {
	Script, Name, Text string
}

func (c *Code) Error() string { return c.Script + ": " + c.Name + ": " + c.Text }

// SizeError has the part of a call that is too large. It matches ErrTooLarge.
type SizeError struct {
	What   string
	N, Max int
	Unit   string
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("%v: %s: %d %s, at most %d in one call", ErrTooLarge, e.What, e.N, e.Unit, e.Max)
}

// Is matches ErrTooLarge.
func (e *SizeError) Is(target error) bool { return target == ErrTooLarge }

// RangeError has the argument and the bound that it breaks. It matches ErrOutOfRange.
type RangeError struct {
	Field, Value string
	// Min and Max are the bounds; empty for none.
	Min, Max string
}

func (e *RangeError) Error() string {
	s := fmt.Sprintf("%s: %s is out of range", e.Field, e.Value)
	if e.Min != "" {
		s += ", at least " + e.Min
	}
	if e.Max != "" {
		s += ", at most " + e.Max
	}
	return s
}

// Is matches ErrOutOfRange.
func (e *RangeError) Is(target error) bool { return target == ErrOutOfRange }

// contents matches a key in which something follows the tag and one letter: tokens, ids of calls, idempotency keys.
var contents = regexp.MustCompile(`(?s)^([^}]*\}(?:\{[^}]*\})?:[a-z]:).+$`)

// shownKey returns a key as an error shows it, with a "*" for what could be a secret. It is a pattern for SCAN.
func shownKey(key string) string { return contents.ReplaceAllString(key, "${1}*") }
