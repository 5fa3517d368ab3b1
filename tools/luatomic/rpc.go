package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"time"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/lua"
)

func rpcCommands() []*command {
	return []*command{rpcServeCommand(), rpcCallCommand(), rpcNodesCommand(), rpcTopCommand()}
}

// busFlags are those of all commands that use a bus.
type busFlags struct {
	name string
	key  string
}

func (f *busFlags) add(fs *flag.FlagSet) {
	fs.StringVar(&f.name, "bus", "default", "`NAME` of the bus")
	fs.StringVar(&f.key, "key-env", "", "`NAME` of an environment variable with the key that proves where frames come from")
}

func (f *busFlags) check() error {
	if f.key != "" && os.Getenv(f.key) == "" {
		return usagef("--key-env %s: there is no such variable in the environment, or it is empty", f.key)
	}
	return lua.CheckName("bus", f.name)
}

// open returns the bus on the user's server, and what closes the connection.
func (f *busFlags) open(s *session, opts luatomic.BusOptions) (*luatomic.Bus, func(), error) {
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return nil, nil, err
	}
	opts.Prefix = s.prefix
	if f.key != "" {
		opts.Keys = [][]byte{[]byte(os.Getenv(f.key))}
	}
	bus, err := luatomic.NewBus(client, f.name, &opts)
	if err != nil {
		_ = client.Close()
		return nil, nil, err
	}
	return bus, func() { _ = client.Close() }, nil
}

type rpcCallCmd struct {
	busFlags
	timeout    time.Duration
	gather     bool
	node       string
	connection string
	once       string
	idempotent bool
	body       json.RawMessage
}

func rpcCallCommand() *command {
	c := &rpcCallCmd{}
	return &command{
		name: "rpc call", args: "METHOD [JSON] [flags]",
		about: "Call a method and print its result.",
		detail: `JSON is the request, null if left out; - reads it from stdin. One live node runs the call; with --gather all that serve
the method do, and each answer is a line, as it comes. Exit code 1 if there is an error, in any line. The codes of errors
are those that handlers choose, and error, internal, bad_request, no_method, overloaded, too_large; no_responder: nobody
serves it, known at once; node_lost: its node died, and the handler may have run; timeout: it may have run, too; failed.`,
		output:  `{"result"} or {"error":{"code","message"}}; with --gather {"node","result"} or {"node","error"} for each node`,
		example: `luatomic rpc call user.get '{"id":7}' --timeout 2s`,
		flags: func(fs *flag.FlagSet) {
			c.add(fs)
			fs.DurationVar(&c.timeout, "timeout", 5*time.Second, "`DURATION` to wait for the answer")
			fs.BoolVar(&c.gather, "gather", false, "ask all nodes")
			fs.StringVar(&c.node, "node", "", "ask the node of that `NAME`, as rpc nodes shows it")
			fs.StringVar(&c.connection, "connection", "", "ask the node that owns the connection `ID`")
			fs.StringVar(&c.once, "idempotency-key", "", "join the call with that `KEY`, or print its result")
			fs.BoolVar(&c.idempotent, "idempotent", false, "the method may run twice: another node gets it when its node dies")
		},
		check: c.check,
		run:   c.run,
	}
}

func (c *rpcCallCmd) check(s *session) error {
	switch {
	case len(s.args) == 0:
		return usagef("the method is missing")
	case len(s.args) > 2:
		return usagef("a method and its request, but there are %d arguments: %q; quote the JSON", len(s.args), s.args)
	case c.gather && c.node+c.connection+c.once != "":
		return usagef("--gather asks all nodes; leave out --node, --connection and --idempotency-key")
	}
	if err := errors.Join(c.busFlags.check(), lua.CheckName("method", s.args[0]), atLeast("timeout", c.timeout, time.Millisecond)); err != nil {
		return err
	}
	c.body = json.RawMessage("null")
	if len(s.args) == 2 {
		c.body = json.RawMessage(s.args[1])
	}
	if string(c.body) == "-" {
		text, err := io.ReadAll(io.LimitReader(os.Stdin, 2<<20))
		if err != nil {
			return err
		}
		c.body = text
	}
	if !json.Valid(c.body) {
		return usagef("the request is not JSON: %.40q; a text needs double quotes inside the shell's", c.body)
	}
	return nil
}

type rpcError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type rpcResult struct {
	Node   string          `json:"node,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *rpcError       `json:"error,omitempty"`
}

// errorCode is the code of a call's error, as the output shows it.
func errorCode(err error) *rpcError {
	var remote *luatomic.RemoteError
	e := &rpcError{Code: "failed", Message: err.Error()}
	switch {
	case errors.As(err, &remote):
		e.Code, e.Message = remote.Code, remote.Message
	case errors.Is(err, luatomic.ErrNoResponders):
		e.Code = "no_responder"
	case errors.Is(err, luatomic.ErrNodeLost):
		e.Code = "node_lost"
	case errors.Is(err, context.DeadlineExceeded):
		e.Code = "timeout"
	}
	return e
}

func (c *rpcCallCmd) run(s *session) error {
	bus, closed, err := c.open(s, luatomic.BusOptions{Node: "luatomic-call"})
	if err != nil {
		return err
	}
	defer closed()
	ctx, cancel := context.WithTimeout(s.signals.stop, c.timeout)
	defer cancel()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = bus.Run(running)
	}()
	defer func() {
		stop()
		<-done
	}()
	failed, err := c.call(ctx, s, bus)
	switch {
	case err != nil:
		return err
	case s.signals.stop.Err() != nil:
		return errInterrupted
	case failed:
		return &exitError{code: exitFailed}
	}
	return nil
}

// call prints the answers. failed says that there was an error among them.
func (c *rpcCallCmd) call(ctx context.Context, s *session, bus *luatomic.Bus) (failed bool, err error) {
	method := luatomic.NewMethod[json.RawMessage, json.RawMessage](s.args[0])
	if c.idempotent {
		method = method.Idempotent()
	}
	show := func(node string, result json.RawMessage, err error) error {
		out := rpcResult{Node: node, Result: result}
		if err != nil {
			out.Result, out.Error, failed = nil, errorCode(err), true
		}
		return s.emit(out)
	}
	if !c.gather {
		result, err := method.CallWith(ctx, bus, c.body, &luatomic.CallOptions{Node: c.node, Connection: c.connection, Key: c.once})
		return failed || err != nil, show("", result, err)
	}
	for part, err := range method.Gather(ctx, bus, c.body) {
		if err := show(part.Node, part.Result, err); err != nil {
			return failed, err
		}
	}
	return failed, nil
}
