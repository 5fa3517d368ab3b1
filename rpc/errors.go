package rpc

import (
	"context"
	"errors"
	"fmt"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/wire"
)

// Errors of calls. Method.Call says when each of them is returned.
var (
	// ErrNoResponders reports that no node could take the call; no handler has run. It is returned as a
	// *NoRespondersError, immediately: after one round trip, or a few if the caller knows nodes that have just died.
	ErrNoResponders = errors.New("luatomic: no responder")
	// ErrNodeLost reports that the node of the call died or left, or that Redis lost the record of the call. The
	// handler may have run, in part or completely; its reply is refused from now on.
	ErrNodeLost = errors.New("luatomic: the node is lost")
	// ErrOverloaded reports that all handlers of all nodes that were asked are busy. No handler has run. It is returned
	// as a *RemoteError with CodeOverloaded.
	ErrOverloaded = errors.New("luatomic: all handlers are busy")
	// ErrUnreadable reports that a node has answered the call and the reply cannot be read: the server has refused or
	// lost the body of the result, or the reply is of another version or key. The handler has run, except after a reply
	// of another version, which may be that of a node that has refused the call.
	ErrUnreadable = errors.New("luatomic: the reply cannot be read")
	// ErrConnectionTaken reports that another live node owns the connection.
	ErrConnectionTaken = errors.New("luatomic: the connection belongs to another node")
	// ErrKeyReused reports that the idempotency key was used for another request of the method, or that the codec has
	// encoded an equal request to other bytes. This request has not been sent.
	ErrKeyReused = errors.New("luatomic: the idempotency key belongs to a request with other bytes; " +
		"repeat that request unchanged, or use a new key for a new one")
)

// NoRespondersError says why no node could take a call. It matches ErrNoResponders.
type NoRespondersError struct {
	Method string
	// Reason is "no node serves it", or one of these, followed by an explanation: "no lease" if the leases of all nodes
	// that served it have ended, or the named node has none; "no subscriber" if nodes are announced but not connected;
	// "no connection" if no node owns the named connection.
	Reason string
}

func (e *NoRespondersError) Error() string {
	return fmt.Sprintf("%v for %q: %s", ErrNoResponders, e.Method, e.Reason)
}

// Is matches ErrNoResponders.
func (e *NoRespondersError) Is(target error) bool { return target == ErrNoResponders }

// Codes of RemoteErrors that the library itself sends.
const (
	CodeError      = "error"       // the handler returned an error without a code
	CodeInternal   = "internal"    // the handler panicked
	CodeBadRequest = "bad_request" // the body is not what the method takes
	CodeNoMethod   = "no_method"   // the node no longer serves the method
	CodeOverloaded = "overloaded"  // all handlers are busy
	CodeTooLarge   = "too_large"   // the result is larger than a reply may be
	CodeVersion    = "version"     // the node does not read requests of this version
	CodeNotOwner   = "not_owner"   // the node no longer owns the connection
	CodeLeft       = "left"        // the node left while the handler ran, or it gave up; callers get ErrNodeLost
	CodeDeadline   = "deadline"    // the handler's time is over; callers get context.DeadlineExceeded
)

// RemoteError is the answer of a handler that failed. A handler may return one to choose the code. With CodeLeft it
// leaves the call unfinished, as the end of its node does: the call goes to another node if the method is Idempotent,
// and ends with ErrNodeLost otherwise.
type RemoteError struct {
	Code, Message string
	// Details are for the caller's program, such as JSON. At most 16 KiB: larger ones are not sent, and Options.OnError
	// of the node says so.
	Details string
	// Node is the node that answered. The caller's bus sets it.
	Node string
}

func (e *RemoteError) Error() string { return "luatomic: remote: " + e.Code + ": " + e.Message }

// Is matches ErrOverloaded for that code.
func (e *RemoteError) Is(target error) bool {
	return target == ErrOverloaded && e.Code == CodeOverloaded
}

// remoteError is the error of a failure that came over the wire.
func remoteError(a *wire.Answer) error {
	if a.Failure == nil {
		return nil
	}
	return &RemoteError{Code: a.Failure.Code, Message: a.Failure.Message, Details: a.Ext.Details, Node: a.Ext.Node}
}

const reasonNoConnection = "no connection: no node owns it; bind it on a node first"

// refusal is the error of a call that no node could take.
func refusal(method string, outcome rpcscript.DecideOutcome) error {
	reason := "no node serves it"
	switch outcome {
	case rpcscript.DecideOutcomeNoLease:
		reason = "no lease: the nodes that served it, or the one that was named, are not alive"
	case rpcscript.DecideOutcomeNoSubscriber:
		reason = "no subscriber: the nodes that serve it are not connected"
	}
	return &NoRespondersError{Method: method, Reason: reason}
}

// unreadable is the error of a call whose reply cannot be read. ran says what is known about the handler.
func unreadable(method, ran string, err error) error {
	return fmt.Errorf("luatomic: call %q: %w, %s: %w", method, ErrUnreadable, ran, err)
}

func lostCall(method, node string) error {
	return fmt.Errorf("luatomic: call %q: the handler may have run: %w: %s", method, ErrNodeLost, node)
}

// leftHalfway is the error of a call whose handler's context ended.
func leftHalfway(method string, a *wire.Answer) error {
	if a.Failure.Code == CodeDeadline {
		return fmt.Errorf("luatomic: call %q: the handler's time is over, it may have run: %w", method,
			context.DeadlineExceeded)
	}
	return lostCall(method, a.Ext.Node)
}

// MissingError says which nodes had not answered a gather when it ended. Their handlers may have run.
type MissingError struct {
	Method string
	Nodes  []string // sorted
	// Err is why it ended. It has as text why the server refused the attempts to send one of the requests until then.
	Err error
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("luatomic: gather %q: %d nodes have not answered, their handlers may have run: %v",
		e.Method, len(e.Nodes), e.Err)
}
