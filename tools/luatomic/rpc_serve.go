package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

type rpcServeCmd struct {
	busFlags
	node        string
	connection  string
	concurrency int
	grace       time.Duration
	text        bool
	stream      bool

	hero heroFlags

	path            string
	s               *session
	handled, failed atomic.Int64
}

func rpcServeCommand() *command {
	c := &rpcServeCmd{}
	return &command{
		name: "rpc serve", args: "METHOD [flags]", child: true, named: true,
		about: "Answer calls by running a command.",
		detail: `CMD gets the request's JSON on stdin, and its stdout, which must be JSON, is the
result; no output is null. With --text a request that is a string arrives as its text, and stdout
becomes a string. With --stream each line is a part of the result. In its environment:
LUATOMIC_METHOD, LUATOMIC_CALL (an id), LUATOMIC_ATTEMPT (1 for the first), LUATOMIC_DEADLINE (Unix
ms). Exit code 0 answers. Any other is an error for the caller: code "error", or "try_later" for
exit code 75; its message is the first line of stderr, which is printed here too. At the caller's
deadline, or when the caller gives up, CMD and what it started are killed: SIGTERM, after 2 s
SIGKILL. Calls beyond -c are answered with "overloaded".
In the dialect actionhero CMD gets the list of arguments, with --text the only one if it is a
string. With any other exit code there is no answer, in the era callback [{}]; calls beyond -c are
dropped. --connection also answers requests for it. After Ctrl-C no call is taken, and CMDs may
finish within the grace; then, or at a second Ctrl-C, they are killed. After SIGTERM the exit code is
0 if none was.`,
		output: `{"handled","failed","late"} at the end; late: answers that came after their caller had given up; in
  actionhero "dropped" in its place: calls beyond -c`,
		example: `luatomic rpc serve upper --text -- tr a-z A-Z`,
		flags: func(fs *flag.FlagSet) {
			c.add(fs)
			c.addKeys(fs)
			fs.StringVar(&c.node, "node", "",
				"`NAME` of this node; a unique part is added; the host's name if left out")
			fs.StringVar(&c.connection, "connection", "",
				"`ID` of a connection that this node owns, for calls with --connection")
			fs.IntVar(&c.concurrency, "c", 8, "`N` commands run at a time")
			fs.DurationVar(&c.grace, "grace", 10*time.Second, "`DURATION` for commands to finish after Ctrl-C")
			fs.BoolVar(&c.text, "text", false, "JSON strings are read and written as plain text")
			fs.BoolVar(&c.stream, "stream", false, "each line of stdout is a part of the result")
			c.hero.add(fs)
		},
		check: c.check,
		run:   c.run,
	}
}

func (c *rpcServeCmd) check(s *session) error {
	if err := s.oneArg("method"); err != nil {
		return err
	}
	if c.concurrency < 1 || c.concurrency > queue.MaxBatch {
		return usagef("-c %d is out of range; write 1 to %d", c.concurrency, queue.MaxBatch)
	}
	if err := errors.Join(atLeast("grace", c.grace, 0), c.busFlags.check(), c.checkHero(s)); err != nil {
		return err
	}
	if c.node == "" {
		host, err := os.Hostname()
		if err != nil || keys.CheckName("node", host) != nil {
			host = "node"
		}
		c.node = host
	}
	c.node = show.Named(c.node)
	if err := keys.CheckName("node", c.node); err != nil {
		return err
	}
	if c.connection != "" {
		if err := keys.CheckName("connection", c.connection); err != nil {
			return err
		}
	}
	var err error
	c.path, err = lookChild(s)
	return err
}

type rpcServeResult struct {
	Handled int64 `json:"handled"`
	Failed  int64 `json:"failed"`
	Late    int64 `json:"late"`
}

func (c *rpcServeCmd) run(s *session) error {
	c.s, s.lasting = s, true
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	if c.hero.dialect != "" {
		return c.runHero(client)
	}
	bus, err := c.open(s, client, rpc.Options{Node: c.node, Concurrency: c.concurrency, Grace: max(c.grace, 1)})
	if err != nil {
		return err
	}
	if c.stream {
		err = rpc.NewStreamMethod[[]byte, []byte](s.args[0]).Serve(bus, c.parts)
	} else {
		err = rpc.NewMethod[[]byte, []byte](s.args[0]).Serve(bus, c.answer, nil)
	}
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(s.signals.stop)
	defer end(nil)
	go c.announce(ctx, end, bus)
	defer context.AfterFunc(s.signals.stop, func() {
		s.note("luatomic: stopping; running commands may finish within %v; Ctrl-C again kills them", c.grace)
	})()
	err = bus.Run(ctx)
	st := bus.Stats()
	if emitErr := s.emit(rpcServeResult{c.handled.Load(), c.failed.Load(), st.Late + st.Stale}); emitErr != nil {
		return errors.Join(err, emitErr)
	}
	if errors.Is(err, rpc.ErrConnectionTaken) {
		return &exitError{exitTryLater, fmt.Errorf("%w; end that node, or wait until its lease is over", err)}
	}
	return err
}

// announce reports on stderr that the node can be called.
func (c *rpcServeCmd) announce(ctx context.Context, end context.CancelCauseFunc, bus *rpc.Bus) {
	if bus.Ready(ctx) != nil {
		return
	}
	if c.connection != "" {
		if err := bus.Bind(ctx, c.connection); err != nil && ctx.Err() == nil {
			end(err)
			return
		}
	}
	c.s.note("luatomic: node %s serves %q on bus %q; Ctrl-C ends it", bus.Node(), c.s.args[0], c.name)
}

// answer runs the command for one call.
func (c *rpcServeCmd) answer(ctx context.Context, in []byte) ([]byte, error) {
	var out resultWriter
	if err := c.count(c.runChild(ctx, in, &out)); err != nil {
		return nil, err
	}
	result, err := c.form(out.text)
	if err != nil {
		c.failed.Add(1)
		c.s.warn(err)
	}
	return result, err
}

// parts runs the command for one call, and sends each line.
func (c *rpcServeCmd) parts(ctx context.Context, in []byte, send func([]byte) error) error {
	out := lineWriter{line: func(text []byte) error {
		part, err := c.form(text)
		if err != nil {
			c.s.warn(err)
			return err
		}
		return send(part)
	}}
	err := c.runChild(ctx, in, &out)
	if lineErr := out.end(); lineErr != nil {
		err = lineErr
	}
	return c.count(err)
}

func (c *rpcServeCmd) count(err error) error {
	c.handled.Add(1)
	if err != nil {
		c.failed.Add(1)
	}
	return err
}
