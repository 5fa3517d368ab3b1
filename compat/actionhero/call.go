package actionhero

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/notify"
)

// call is a call that waits for responses.
type call struct {
	changed chan struct{} // signalled when a field below changes

	mu        sync.Mutex
	order     []*Response // the first of each node
	nodes     map[string]bool
	echoed    bool // this node received it itself
	own       int  // 1 if this node serves it
	receivers int  // connections that received it, -1 if unknown
	failure   error
}

func (c *call) note() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// answer adds a response, and reports whether it is the first of its node.
func (c *call) answer(r *Response) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[r.ServerID] {
		return false
	}
	c.nodes[r.ServerID] = true
	c.order = append(c.order, r)
	c.note()
	return true
}

// echo records that this node received its own call.
func (c *call) echo(served bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.echoed = true
	if served {
		c.own = 1
	}
	c.note()
}

func (c *call) sent(receivers int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receivers, c.failure = receivers, err
	c.note()
}

// snapshot returns the responses so far and how many there can be, -1 if unknown. One of the receivers is this node's
// own connection; that is certain only after the echo.
func (c *call) snapshot() (came []*Response, can int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	can = -1
	if c.receivers == 0 {
		can = 0
	} else if c.receivers > 0 && c.echoed {
		can = c.receivers - 1 + c.own
	}
	return c.order, can, c.failure
}

// DoCluster calls a method on all nodes, or on the node that has the connection, and returns the first response. args
// become a JSON list. In the callback era their number must match Options.Methods. Every node that serves the method
// runs it, including this one.
//
// The call is made at most once and waits for Timeout or ctx. It is one PUBLISH, sent after this node has subscribed
// and registered the call, so no response is missed. The error is ErrNoResponders if no other node is subscribed (known
// after one round trip if all nodes are on one server), ErrTimeout, ErrRemote with the response, ErrNotRunning,
// ErrUndeclared, ErrEncoding or ErrBadName. A node that does not have the method sends nothing. In the promise eras a
// method that throws, or a name that exists but is not a function, ends the process of each node that runs it: see
// Options.Methods.
func (n *Node) DoCluster(ctx context.Context, method string, args []any, connectionID string) (*Response, error) {
	var first *Response
	err := n.do(ctx, method, args, connectionID, n.opts.Timeout, func(came []*Response, can int) (bool, error) {
		switch {
		case len(came) > 0:
			first = came[0]
			return true, first.Err()
		case can == 0:
			return true, fmt.Errorf("%w: %q", ErrNoResponders, method)
		}
		return false, nil
	})
	var over *windowError
	if errors.As(err, &over) {
		err = fmt.Errorf("%w: %s, within %v", ErrTimeout, method, n.opts.Timeout)
		if over.publish != nil {
			err = fmt.Errorf("%w (%w)", err, over.publish)
		}
	}
	return first, err
}

// Gather calls a method as DoCluster does and returns the responses within the window, by serverId: the first of each
// node. It returns earlier when all receivers of the call have answered. Without a response it returns an empty map and
// no error. If no other node is subscribed, it returns ErrNoResponders.
//
// A node that failed has no response, or in the callback era one with an Err.
func (n *Node) Gather(
	ctx context.Context, method string, args []any, connectionID string, window time.Duration,
) (map[string]*Response, error) {
	all := make(map[string]*Response)
	err := n.do(ctx, method, args, connectionID, window, func(came []*Response, can int) (bool, error) {
		if can == 0 {
			return true, fmt.Errorf("%w: %q", ErrNoResponders, method)
		}
		for _, r := range came {
			all[r.ServerID] = r
		}
		return can > 0 && len(came) >= can, nil
	})
	var over *windowError
	if err != nil && !errors.As(err, &over) {
		return nil, err
	}
	return all, nil
}

// Cast calls a method on all nodes, or on the node that has the connection, and waits for no response, as doCluster
// does without a callback. args are those of DoCluster. One PUBLISH, at most once; Run need not be running. The error
// is ErrNoResponders if no process is subscribed, ErrUndeclared, ErrEncoding or ErrBadName, or wraps the cause of ctx'
// end, after which the message may still arrive. A nil error does not mean that a node ran the method.
func (n *Node) Cast(ctx context.Context, method string, args []any, connectionID string) error {
	text, _, err := n.request(method, args, connectionID)
	if err != nil {
		return err
	}
	n.counts.calls.Add(1)
	receivers, err := n.publish(ctx, text)
	if err == nil && receivers == 0 && n.counted {
		err = fmt.Errorf("%w: %q", ErrNoResponders, method)
	}
	return err
}

// windowError reports that the window is over, and the error of PUBLISH if it failed.
type windowError struct{ publish error }

func (e *windowError) Error() string { return "the time is over" }

// do makes a call, and evaluates complete after each change.
func (n *Node) do(
	ctx context.Context, method string, args []any, connectionID string, window time.Duration,
	complete func(came []*Response, can int) (bool, error),
) error {
	text, id, err := n.request(method, args, connectionID)
	if err != nil {
		return err
	}
	timer := time.NewTimer(window)
	defer timer.Stop()
	limited, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	leave, err := n.waitReady(limited)
	if err != nil {
		return err
	}
	defer leave()

	c := &call{changed: make(chan struct{}, 1), nodes: make(map[string]bool), receivers: -1}
	n.wait(id, c)
	defer n.forget(id)
	go n.send(limited, c, text) // a response can be faster than its reply
	for over := false; ; {
		select {
		case <-c.changed:
		case <-n.ended: // what has come counts
			over = true
		case <-timer.C:
			_, _, failure := c.snapshot()
			return &windowError{failure}
		case <-ctx.Done():
			return n.endOf(ctx, c)
		}
		came, can, failure := c.snapshot()
		if failure != nil && notSent(failure) {
			return failure
		}
		if done, err := complete(came, can); done {
			return err
		}
		if over {
			return fmt.Errorf("%w (Run has ended; a node may have run %q)", ErrNotRunning, method)
		}
	}
}

// endOf returns why ctx has ended, with the failure to send the call as text, if there was one.
func (*Node) endOf(ctx context.Context, c *call) error {
	if _, _, failure := c.snapshot(); failure != nil && !errors.Is(failure, ctx.Err()) {
		return fmt.Errorf("actionhero: %w; before that: %v", clock.EndOf(ctx), failure)
	}
	return fmt.Errorf("actionhero: %w", clock.EndOf(ctx))
}

// request checks the call and encodes it.
func (n *Node) request(method string, args []any, connectionID string) (text []byte, id string, err error) {
	if err := checkMethod(method); err != nil {
		return nil, "", err
	}
	if err := checkConnection(connectionID); err != nil {
		return nil, "", err
	}
	if !n.declared(method, len(args)) {
		return nil, "", fmt.Errorf("%w: %q with %d", ErrUndeclared, method, len(args))
	}
	m := wire{MessageType: typeDo, ServerID: n.opts.ServerID, ServerToken: n.opts.ServerToken, Method: method}
	m.RequestID = uuid.NewString()
	m.MessageID = m.RequestID
	if m.Args, err = encodeArgs(args); err != nil {
		return nil, "", fmt.Errorf("actionhero: arguments of %s: %w", method, err)
	}
	m.ConnectionID = []byte("null")
	if connectionID != "" {
		if m.ConnectionID, err = encode(connectionID); err != nil {
			return nil, "", fmt.Errorf("actionhero: connection: %w", err)
		}
	}
	text, err = encode(m)
	return text, m.RequestID, err
}

// declared reports whether the method may be called: in the promise eras the list is optional, and the number of
// arguments ends no process.
func (n *Node) declared(method string, args int) bool {
	want, ok := n.opts.Methods[method]
	if n.opts.Era == Callback {
		return ok && want == args
	}
	return ok || n.opts.Methods == nil
}

// waitReady returns when the node is subscribed.
func (n *Node) waitReady(ctx context.Context) (leave func(), err error) {
	if err := n.Ready(ctx); err != nil {
		return nil, err
	}
	n.mu.Lock()
	hub := n.hub
	n.mu.Unlock()
	for {
		err := hub.Subscribe(ctx, n.opts.Channel)
		if err == nil {
			return func() { hub.Unsubscribe(n.opts.Channel) }, nil
		}
		hub.Unsubscribe(n.opts.Channel)
		if errors.Is(err, notify.ErrClosed) || !clock.Sleep(ctx, 20*time.Millisecond) {
			return nil, fmt.Errorf("%w (%w)", ErrNotRunning, err)
		}
	}
}

func (n *Node) send(ctx context.Context, c *call, text []byte) {
	n.counts.calls.Add(1)
	receivers, err := n.publish(ctx, text)
	if err != nil || !n.counted {
		receivers = -1
	}
	c.sent(int(receivers), err)
}

// notSent reports whether PUBLISH failed before the message was sent. Otherwise the response may still arrive.
func notSent(err error) bool {
	var refused redis.Error
	var op *net.OpError
	switch {
	case errors.As(err, &refused):
		return true
	case errors.As(err, &op):
		return op.Op == "dial"
	}
	return errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout)
}

func (n *Node) wait(id string, c *call) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls[id] = c
}

func (n *Node) forget(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.calls, id)
}
