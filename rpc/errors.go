package rpc

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/wire"
)

// Errors of calls. Method.Call says when each of them is returned.
var (
	// ErrNoResponders reports that no node could take the call. It is returned as a *NoRespondersError, after one
	// round trip; no handler has run.
	ErrNoResponders = errors.New("luatomic: no responder")
	// ErrNodeLost reports that the node which had the call died or left. Its handler may have run, in part or whole;
	// its reply is refused from now on.
	ErrNodeLost = errors.New("luatomic: the node is lost")
	// ErrOverloaded reports that all handlers of all nodes are busy. No handler has run. It is returned as a
	// *RemoteError with CodeOverloaded.
	ErrOverloaded = errors.New("luatomic: all handlers are busy")
	// ErrConnectionTaken reports that another live node owns the connection.
	ErrConnectionTaken = errors.New("luatomic: the connection belongs to another node")
)

// NoRespondersError says why no node could take a call. It matches ErrNoResponders.
type NoRespondersError struct {
	Method string
	// Reason is "no node serves it"; "no lease" when the leases of all nodes that served it have ended; "no
	// subscriber" when nodes are announced but not connected; "no connection" when no node owns the connection that
	// was named. An explanation follows it.
	Reason string
}

func (e *NoRespondersError) Error() string {
	return fmt.Sprintf("%v for %q: %s", ErrNoResponders, e.Method, e.Reason)
}

// Is matches ErrNoResponders.
func (e *NoRespondersError) Is(target error) bool { return target == ErrNoResponders }

// Codes of a RemoteError that the library itself sends.
const (
	CodeError      = "error"       // the handler returned an error without a code
	CodeInternal   = "internal"    // the handler panicked
	CodeBadRequest = "bad_request" // the body is not what the method takes
	CodeNoMethod   = "no_method"   // the node does not serve the method any more
	CodeOverloaded = "overloaded"  // all handlers are busy
	CodeTooLarge   = "too_large"   // the result is larger than a reply may be
)

// RemoteError is the answer of a handler that failed. A handler may return one to choose the code.
type RemoteError struct {
	Code, Message string
}

func (e *RemoteError) Error() string { return "luatomic: remote: " + e.Code + ": " + e.Message }

// Is matches ErrOverloaded for that code.
func (e *RemoteError) Is(target error) bool {
	return target == ErrOverloaded && e.Code == CodeOverloaded
}

// remoteError is the error of a failure that came over the wire.
func remoteError(f *wire.Failure) error {
	if f == nil {
		return nil
	}
	return &RemoteError{Code: f.Code, Message: f.Message}
}

// notSent marks the error of a call that certainly was not sent.
type notSent struct{ error }

func unwrapNotSent(err error) (plain error, certain bool) {
	if e, ok := err.(notSent); ok {
		return e.error, true
	}
	return err, false
}

// refusal is the error of a call that the script did not send.
func refusal(method string, outcome gen.RPCDirectOutcome) error {
	reason := ""
	switch outcome {
	case gen.RPCDirectOutcomeOverloaded:
		message := "all handlers of " + strconv.Quote(method) + " are busy"
		return notSent{&RemoteError{Code: CodeOverloaded, Message: message}}
	case gen.RPCDirectOutcomeNoLease:
		reason = "no lease: the nodes that served it are dead"
	case gen.RPCDirectOutcomeNoSubscriber:
		reason = "no subscriber: the nodes that serve it are not connected"
	case gen.RPCDirectOutcomeNoConnection:
		reason = "no connection: no node owns it; bind it with Bus.Bind"
	default:
		reason = "no node serves it"
	}
	return notSent{&NoRespondersError{Method: method, Reason: reason}}
}

func lostCall(method, node string) error {
	return fmt.Errorf("luatomic: call %q: the handler may have run: %w: %s", method, ErrNodeLost, node)
}
