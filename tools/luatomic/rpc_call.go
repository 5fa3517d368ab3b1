package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

type rpcCallCmd struct {
	busFlags
	timeout                           time.Duration
	to, connection, key               string
	gather, cast, all, stream, repeat bool

	hero  heroFlags
	arity int

	body []byte
	s    *session
	bus  *rpc.Bus
}

func rpcCallCommand() *command {
	c := &rpcCallCmd{}
	return &command{
		name: "rpc call", args: "METHOD [JSON] [flags]",
		about: "Call a method that a node serves.",
		detail: `One live node runs it, the less busy of two that are picked at random. JSON is the request,
null if left out; - reads it from stdin. Each call has one outcome: the result, the node's error, "no_responder" or
"overloaded" (no handler ran), "node_lost" or "timeout" (it may have run). --gather asks all nodes
that serve the method: an object for each answer, and a last one that names the nodes without an
answer. --cast sends and does not wait, to all nodes with --all. --key joins a call of the method
with the same key. In the dialect actionhero JSON is the list of arguments, and any other JSON is
the only argument; the first answer counts, a node that fails does not answer, and --gather shows
the answers that came within --timeout.
Exit code 1 for an error, 75 where a later try may help: no_responder, overloaded, no_method,
try_later.`,
		output: `{"result"} or {"error":{"code","message"}}; --gather: {"node","result"} or {"node","error"} for each,
  then {"answered","failed","missing"}; --stream: {"part"} for each, then {"parts"}; --cast: {"sent"}`,
		example: `luatomic rpc call upper '"ann"' --timeout 2s`,
		flags: func(fs *flag.FlagSet) {
			c.add(fs)
			c.addKeys(fs)
			fs.DurationVar(&c.timeout, "timeout", 5*time.Second, "`DURATION` to wait for the answer")
			fs.StringVar(&c.to, "to", "", "`NODE` to call, as rpc nodes names it, or the part before the dot")
			fs.StringVar(&c.connection, "connection", "", "`ID` of a connection; the node that owns it answers")
			fs.StringVar(&c.key, "key", "", "`TEXT`; idempotency key: calls with the same key run once, "+
				"and the result is kept for an hour")
			fs.BoolVar(&c.repeat, "idempotent", false, "another node may run it when the first one dies")
			fs.BoolVar(&c.gather, "gather", false, "ask all nodes that serve the method")
			fs.BoolVar(&c.stream, "stream", false, "the result comes in parts")
			fs.BoolVar(&c.cast, "cast", false, "send it to one node, without an answer")
			fs.BoolVar(&c.all, "all", false, "with --cast: to all nodes")
			c.hero.add(fs)
			fs.IntVar(&c.arity, "arity", 0, "in the era callback: "+
				"the `N` arguments that METHOD takes before its callback; nodes end at another number")
		},
		check: c.check,
		run:   c.run,
	}
}

func (c *rpcCallCmd) check(s *session) error {
	switch len(s.args) {
	case 0:
		return usagef("the method is missing; name it")
	case 1:
		s.args = append(s.args, "null")
	case 2:
	default:
		return usagef("one method and one request, but there are %d arguments; quote the JSON", len(s.args))
	}
	s.args[0], c.to = show.Named(s.args[0]), show.Named(c.to)
	if err := keys.CheckName("method", s.args[0]); err != nil {
		return err
	}
	if err := errors.Join(atLeast("timeout", c.timeout, time.Millisecond), c.busFlags.check(), c.checkModes(),
		c.checkHero(s)); err != nil {
		return err
	}
	for what, name := range map[string]string{"node": c.to, "connection": c.connection, "key": c.key} {
		check := keys.CheckName
		if what == "key" {
			check = keys.CheckSecret
		}
		if name == "" {
			continue
		}
		if err := check(what, name); err != nil {
			return err
		}
	}
	if c.body = []byte(s.args[1]); s.args[1] == "-" {
		return nil // read when the server has answered
	}
	return c.checkBody()
}

func (c *rpcCallCmd) checkBody() error {
	if !json.Valid(c.body) {
		return usagef(`the request is not JSON; a text needs quotes of its own: '"text"'`)
	}
	return nil
}

// errNotSent is of a call that is interrupted while the bus is joined.
var errNotSent = fmt.Errorf("%w before anything was sent", errInterrupted)

// notJoined is of a call before which the bus could not be joined in time.
func (c *rpcCallCmd) notJoined() error {
	if c.s.signals.stop.Err() != nil {
		return errNotSent
	}
	return c.s.notSent(fmt.Sprintf("the bus could not be joined within %v", c.timeout), c.why.Load())
}

// notSent is of a call before which something could not be done, for the reason why, or for that of an outage.
func (s *session) notSent(what string, why *error) error {
	reason := "; check that SUBSCRIBE and PUBLISH are allowed"
	away := s.outage.now()
	switch {
	case why != nil:
		reason = ": " + withCure(*why)
	case away != nil:
		reason = ": " + withCure(away)
	}
	return &outcomeError{code: "not_sent", msg: what + ", so nothing was sent" + reason}
}

// readBody takes the request from stdin, in a goroutine: a read of a terminal or pipe
// cannot be interrupted.
func (c *rpcCallCmd) readBody() error {
	read := make(chan error, 1)
	go func() {
		var err error
		c.body, err = io.ReadAll(io.LimitReader(os.Stdin, 2*queue.MaxBatchBytes))
		read <- err
	}()
	select {
	case <-c.s.signals.stop.Done():
		return errInterrupted
	case err := <-read:
		switch {
		case err != nil:
			return fmt.Errorf("stdin: %w", err)
		case len(c.body) == 2*queue.MaxBatchBytes: // and there may be more
			return c.fail(&outcomeError{"too_large",
				fmt.Sprintf("the request is larger than %d bytes, so nothing was sent; "+
					"store the data elsewhere and send its place", queue.MaxBatchBytes)})
		}
	}
	return c.checkBody()
}

// checkModes refuses flags that exclude each other.
func (c *rpcCallCmd) checkModes() error {
	set := func(names ...string) (on []string) {
		flags := map[string]bool{
			"--gather": c.gather, "--cast": c.cast, "--stream": c.stream, "--to": c.to != "",
			"--connection": c.connection != "",
			"--key":        c.key != "", "--idempotent": c.repeat,
		}
		for _, name := range names {
			if flags[name] {
				on = append(on, name)
			}
		}
		return on
	}
	if on := set("--gather", "--cast", "--stream", "--to", "--connection"); len(on) > 1 {
		return usagef("%s do not go together; leave all but one of them out", strings.Join(on, " and "))
	}
	if on := set("--gather", "--cast", "--stream", "--key"); c.key != "" && len(on) > 1 {
		return usagef("%s do not go together: the key is for a call with one answer", strings.Join(on, " and "))
	}
	if on := set("--gather", "--cast", "--stream", "--to", "--connection", "--idempotent"); c.repeat && len(on) > 1 {
		return usagef("%s do not go together: only a call to any node can go to another one", strings.Join(on, " and "))
	}
	if c.all && !c.cast {
		return usagef("--all is for --cast; --gather asks all and waits for their answers")
	}
	return nil
}

func (c *rpcCallCmd) run(s *session) error {
	c.s = s
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if s.args[1] == "-" {
		if err := c.readBody(); err != nil {
			return err
		}
	}
	if c.hero.dialect != "" {
		return c.runHero(client)
	}
	if c.bus, err = c.open(s, client, rpc.Options{Timeout: c.timeout}); err != nil {
		return err
	}
	defer runBus(c.bus)()
	ctx, cancel := context.WithTimeout(s.signals.stop, c.timeout)
	defer cancel()
	if err := c.bus.Ready(ctx); err != nil {
		return c.fail(c.notJoined())
	}
	switch {
	case c.gather:
		return c.runGather(ctx)
	case c.cast:
		return c.runCast(ctx)
	case c.stream:
		return c.runStream(ctx)
	}
	return c.runCall(ctx)
}

func (c *rpcCallCmd) runCall(ctx context.Context) error {
	m := rpc.NewMethod[[]byte, []byte](c.s.args[0])
	if c.repeat {
		m = m.Idempotent()
	}
	node, err := c.node(ctx)
	if err != nil {
		return err
	}
	out, err := m.Call(ctx, c.bus, c.body, &rpc.CallOptions{Node: node, Connection: c.connection, Key: c.key})
	if err == nil {
		err = checkJSON(out)
	}
	if err != nil {
		return c.fail(err)
	}
	return c.s.emit(rpcResult{Result: out})
}

// node completes the name of --to.
func (c *rpcCallCmd) node(ctx context.Context) (string, error) {
	if c.to == "" {
		return "", nil
	}
	nodes, err := c.bus.Nodes(ctx)
	if err != nil {
		return "", c.fail(err)
	}
	var found []string
	for _, n := range nodes {
		if n.Node == c.to {
			return c.to, nil
		}
		if strings.HasPrefix(n.Node, c.to+".") {
			found = append(found, n.Node)
		}
	}
	switch len(found) {
	case 0:
		return c.to, nil // the call reports that it is missing
	case 1:
		return found[0], nil
	}
	return "", usagef("--to %s: there are %d nodes of that name; choose one of %s", c.to, len(found),
		strings.Join(found, ", "))
}

func (c *rpcCallCmd) runCast(ctx context.Context) error {
	m := rpc.NewMethod[[]byte, []byte](c.s.args[0])
	sent, err := 1, error(nil)
	if c.all {
		sent, err = m.CastAll(ctx, c.bus, c.body)
	} else {
		err = m.Cast(ctx, c.bus, c.body)
	}
	if err != nil {
		return c.fail(err)
	}
	return c.s.emit(castResult{sent})
}

func (c *rpcCallCmd) runStream(ctx context.Context) error {
	parts := 0
	for part, err := range rpc.NewStreamMethod[[]byte, []byte](c.s.args[0]).Call(ctx, c.bus, c.body) {
		if err == nil {
			err = checkJSON(part)
		}
		if err != nil {
			return c.fail(err)
		}
		parts++
		if err := c.s.emit(rpcPart{part}); err != nil {
			return err
		}
	}
	return c.s.emit(rpcParts{parts})
}

func (c *rpcCallCmd) runGather(ctx context.Context) error {
	var last gatherEnd
	for p, err := range rpc.NewMethod[[]byte, []byte](c.s.args[0]).Gather(ctx, c.bus, c.body) {
		if err == nil {
			err = checkJSON(p.Result)
		}
		var missing *rpc.MissingError
		switch {
		case errors.As(err, &missing):
			last.Missing = append(last.Missing, show.Names(missing.Nodes)...)
			continue
		case p.Node == "":
			return c.fail(err)
		case errors.Is(err, rpc.ErrNodeLost):
			last.Missing = append(last.Missing, label(p.Node))
		case err != nil:
			last.Failed++
		default:
			last.Answered++
		}
		out := gatherPart{Node: label(p.Node), rpcResult: rpcResult{Result: p.Result}}
		if err != nil {
			e := describe(err)
			out.rpcResult = rpcResult{Error: &e.rpcError}
		}
		if err := c.s.emit(out); err != nil {
			return err
		}
	}
	if err := c.s.emit(last); err != nil {
		return err
	}
	switch {
	case c.s.signals.stop.Err() != nil:
		return errInterrupted
	case last.Failed > 0 || len(last.Missing) > 0:
		return &exitError{code: exitFailed}
	}
	return nil
}
