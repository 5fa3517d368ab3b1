package actionhero

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
)

// receive handles a message of the channel. It runs on the subscriber's goroutine.
func (n *Node) receive(text string) {
	m, ok := parse(text)
	switch {
	case !ok:
		n.counts.malformed.Add(1)
	case !m.trusted(n.opts.ServerToken):
		n.counts.badToken.Add(1)
	case m.MessageType == typeDo:
		n.receiveCall(m)
	case m.MessageType == typeResponse:
		n.heardResponse(m)
	default:
		n.mu.Lock()
		receive := n.subscriptions[m.MessageType]
		n.mu.Unlock()
		if receive != nil {
			n.pass(receive, Message{Type: m.MessageType, ServerID: m.ServerID, Raw: json.RawMessage(text)})
		}
	}
}

func (n *Node) pass(receive func(Message), m Message) {
	if err := protect(func() error { receive(m); return nil }); err != nil {
		n.report(fmt.Errorf("actionhero: message of type %q: %w", m.Type, err))
	}
}

// id returns the caller's id; where both fields are set they are equal.
func (m *wire) id() string {
	if m.MessageID != "" {
		return m.MessageID
	}
	return m.RequestID
}

func (n *Node) heardResponse(m *wire) {
	n.mu.Lock()
	c := n.calls[m.id()]
	n.mu.Unlock()
	if c == nil || !c.answer(m.response(n.opts.Era)) {
		n.counts.late.Add(1)
	}
}

// receiveCall starts the handler. Methods that are not registered do not exist, such as api.log, with which nodes
// announce start and stop.
func (n *Node) receiveCall(m *wire) {
	if m.id() == "" || m.Method == "" {
		n.counts.malformed.Add(1)
		return
	}
	connection, one := m.connection()
	n.mu.Lock()
	ctx, handler := n.ctx, n.handlers[m.Method]
	mine := !one || n.owned[connection]
	c := n.calls[m.id()]
	n.mu.Unlock()
	serve := mine && handler != nil
	if c != nil {
		c.echo(serve)
	}
	if !serve {
		if mine {
			n.counts.unknown.Add(1)
		}
		return
	}
	select {
	case n.slots <- struct{}{}:
	default:
		n.counts.shed.Add(1)
		return
	}
	n.work.Go(func() {
		defer func() { <-n.slots }()
		n.serve(ctx, m, handler, &Request{Method: m.Method, ServerID: m.ServerID, ConnectionID: connection,
			Args: m.arguments()})
	})
}

func (n *Node) serve(ctx context.Context, m *wire, handler Handler, r *Request) {
	ctx, cancel := context.WithTimeout(ctx, n.opts.Timeout)
	defer cancel()
	n.counts.served.Add(1)
	began := time.Now()
	if n.opts.Era == Callback && m.RequestID != "" {
		m.MessageID = "" // a call by Go has both ids; its response has the form of the other callers, even an error
	}
	var value any
	failed := errExited
	defer func() { n.answer(ctx, m, r.Method, began, value, failed) }() // also when the handler ends its goroutine
	failed = protect(func() (err error) {
		value, err = handler(ctx, r)
		return err
	})
}

// errExited is the error of a handler that did not return.
var errExited = errors.New("the handler ended its goroutine; return an error instead")

// answer sends the response of a call that began at that time.
func (n *Node) answer(ctx context.Context, m *wire, method string, began time.Time, value any, failed error) {
	var response json.RawMessage
	var answer bool
	err := protect(func() (err error) { // the result writes its own JSON
		response, answer, err = reply(m, n.opts.Era, value, failed)
		return err
	})
	if err != nil {
		failed = fmt.Errorf("result: %w", err)
		response, answer, _ = reply(m, n.opts.Era, nil, failed)
	}
	if failed != nil {
		n.counts.failed.Add(1)
		n.report(fmt.Errorf("actionhero: %s: %w", method, failed))
	}
	unfinished := failed != nil && errors.Is(ctx.Err(), context.Canceled) || errors.Is(failed, ErrUnanswered)
	if !answer || unfinished {
		return
	}
	if m.MessageID == "" && n.opts.Era == Promise18 {
		clock.Sleep(ctx, n.opts.Hold-time.Since(began))
	}
	out := wire{
		MessageType: typeResponse, ServerID: n.opts.ServerID, ServerToken: n.opts.ServerToken,
		RequestID: m.RequestID, MessageID: m.MessageID, Response: response,
	}
	text, err := encode(out)
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		ctx = context.WithoutCancel(ctx) // Run may end, but the method ran and its caller waits
	}
	if err == nil {
		_, err = n.publish(ctx, text)
	}
	if err != nil {
		n.report(fmt.Errorf("actionhero: response of %s: %w", method, err))
	}
}

// protect turns a panic into an error with its stack: one bad message must not end the process. The error stays here.
func protect(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
