package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/rpc"
)

// The objects on stdout of rpc call.

type rpcError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type rpcResult struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  *rpcError       `json:"error,omitempty"`
}

type gatherPart struct {
	Node label `json:"node"`
	rpcResult
}

type gatherEnd struct {
	Answered int     `json:"answered"`
	Failed   int     `json:"failed"`
	Missing  []label `json:"missing"`
}

type rpcPart struct {
	Part json.RawMessage `json:"part"`
}

type rpcParts struct {
	Parts int `json:"parts"`
}

type castResult struct {
	Sent int `json:"sent"`
}

// outcomeError is an outcome of a call that the command itself found.
type outcomeError struct{ code, msg string }

func (e *outcomeError) Error() string { return e.msg }

// checkJSON checks that a result can be printed.
func checkJSON(body []byte) error {
	if !json.Valid(body) {
		return &outcomeError{codeBadResult, fmt.Sprintf("the handler ran, and its result of %d bytes is not JSON",
			len(body))}
	}
	return nil
}

// ending is how a call ended: the object on stdout, and the exit code.
type ending struct {
	rpcError
	exit int
}

// describe finds the code of a call's error. docs/rpc.md has what each means.
func describe(err error) ending {
	message := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "luatomic: "), "actionhero: "),
		": luatomic: ", ": ")
	is := func(code string, exit int) ending { return ending{rpcError{code, message}, exit} }
	var own *outcomeError
	var remote *rpc.RemoteError
	switch {
	case errors.As(err, &own):
		return is(own.code, exitFailed)
	case errors.As(err, &remote):
		message = remote.Message
		switch remote.Code {
		case rpc.CodeOverloaded, rpc.CodeNoMethod, codeTryLater:
			return is(remote.Code, exitTryLater)
		}
		return is(remote.Code, exitFailed)
	case errors.Is(err, rpc.ErrNoResponders), errors.Is(err, actionhero.ErrNoResponders):
		return is("no_responder", exitTryLater)
	case errors.Is(err, rpc.ErrKeyReused):
		return is("key_reused", exitFailed)
	case errors.Is(err, rpc.ErrNodeLost):
		return is("node_lost", exitFailed)
	case errors.Is(err, errInterrupted):
		return is("canceled", exitInterrupted)
	case errors.Is(err, lua.ErrTooLarge):
		return is("too_large", exitFailed)
	case errors.Is(err, lua.ErrNotExecuted):
		return is("not_sent", exitFailed)
	case errors.Is(err, actionhero.ErrRemote):
		return is(rpc.CodeError, exitFailed)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, actionhero.ErrTimeout):
		return is("timeout", exitFailed)
	case errors.Is(err, lua.ErrOutcomeUnknown):
		return is("unknown", exitFailed)
	}
	return is("failed", exitFailed)
}

// fail writes the outcome of a call to stdout, and to stderr what to check.
func (c *rpcCallCmd) fail(err error) error {
	if c.s.signals.stop.Err() != nil && !errors.Is(err, errInterrupted) {
		err = fmt.Errorf("%w: %w", err, errInterrupted)
	}
	e := describe(err)
	if err := c.s.emit(rpcResult{Error: &e.rpcError}); err != nil {
		return err
	}
	if e.Code == "no_responder" && c.hero.dialect == "" {
		c.s.note("luatomic: no node can run %q on bus %q; luatomic rpc nodes --bus %s lists the nodes", c.s.args[0],
			c.busFlags.name, quoted(show.Label(c.busFlags.name)))
	}
	return &exitError{code: e.exit}
}
