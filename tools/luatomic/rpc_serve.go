package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/lua"
)

type rpcServeCmd struct {
	busFlags
	concurrency int
	node        string
	grace       time.Duration
	path        string
	s           *session
}

func rpcServeCommand() *command {
	c := &rpcServeCmd{}
	return &command{
		name: "rpc serve", args: "METHOD [flags]", child: true,
		about: "Answer the calls of a method with a command.",
		detail: `CMD runs once for each call, with the request on stdin and LUATOMIC_METHOD and LUATOMIC_DEADLINE (Unix ms) in its
environment. Its stdout is the result: JSON as it is, any other text as a JSON string, nothing as null. If it ends with
another exit code than 0, the caller gets an error with the last line of its stderr. When the caller gives up, or its time
is over, CMD and what it started are killed. Ctrl-C takes no more calls and lets those that run finish within --grace.`,
		output:  `at the end {"handled"}`,
		example: `luatomic rpc serve text.upper -- tr a-z A-Z`,
		flags: func(fs *flag.FlagSet) {
			c.add(fs)
			fs.IntVar(&c.concurrency, "c", 4, "run up to `N` commands at once; more calls are answered as overloaded")
			fs.StringVar(&c.node, "node", "", "`NAME` of this node, for people; the host's if left out")
			fs.DurationVar(&c.grace, "grace", 10*time.Second, "`DURATION` that running commands get after Ctrl-C")
		},
		check: c.check,
		run:   c.run,
	}
}

func (c *rpcServeCmd) check(s *session) error {
	if err := s.oneArg("method"); err != nil {
		return err
	}
	if c.concurrency < 1 || c.concurrency > 1000 {
		return usagef("-c %d is out of range; 1 to 1000", c.concurrency)
	}
	if c.node == "" {
		if host, err := os.Hostname(); err == nil && lua.CheckName("node", host) == nil {
			c.node = host
		}
	}
	if err := errors.Join(c.busFlags.check(), atLeast("grace", c.grace, 0)); err != nil {
		return err
	}
	var err error
	c.path, err = lookChild(s)
	return err
}

func (c *rpcServeCmd) run(s *session) error {
	c.s = s
	bus, closed, err := c.open(s, luatomic.BusOptions{Node: c.node, Concurrency: c.concurrency, OnError: s.warn})
	if err != nil {
		return err
	}
	defer closed()
	method := luatomic.NewMethod[json.RawMessage, json.RawMessage](s.args[0])
	if err := method.Serve(bus, c.answer); err != nil {
		return err
	}
	go func() {
		if bus.Ready(s.signals.stop) == nil {
			s.note("luatomic: %s serves %q on bus %q; Ctrl-C ends it", bus.Node(), s.args[0], c.name)
		}
	}()
	_ = bus.Run(s.signals.stop) // its error is the interrupt
	if err := s.emit(map[string]int64{"handled": bus.Stats().Handled}); err != nil {
		return err
	}
	return errInterrupted
}

// answer runs the command for one call.
func (c *rpcServeCmd) answer(ctx context.Context, body json.RawMessage) (json.RawMessage, error) {
	cmd := exec.Command(c.path, c.s.child[1:]...)
	cmd.Args[0] = c.s.child[0]
	cmd.Env = append(os.Environ(), "LUATOMIC_METHOD="+c.s.args[0])
	if deadline, ok := ctx.Deadline(); ok {
		cmd.Env = append(cmd.Env, fmt.Sprintf("LUATOMIC_DEADLINE=%d", deadline.UnixMilli()))
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(body), &stdout, &stderr
	running, err := startChild(cmd, false)
	if err != nil {
		return nil, err
	}
	select {
	case <-running.done:
	case <-ctx.Done():
		if err := c.end(ctx, running); err != nil {
			return nil, err
		}
	}
	_, _ = os.Stderr.Write(stderr.Bytes())
	if err := running.err(); err != nil {
		return nil, &luatomic.RemoteError{Code: luatomic.CodeError, Message: describe(err, stderr.Bytes())}
	}
	return asJSON(stdout.Bytes())
}

// end waits for the command when the node is stopping, and kills it when its call is
// over.
func (c *rpcServeCmd) end(ctx context.Context, running *child) error {
	if c.s.signals.stop.Err() != nil {
		select {
		case <-running.done:
			return nil
		case <-time.After(c.grace):
		case <-c.s.signals.hard.Done():
		}
	}
	running.terminate()
	return fmt.Errorf("command killed: %w", ctx.Err())
}

func describe(err error, stderr []byte) string {
	lines := bytes.Split(bytes.TrimSpace(stderr), []byte("\n"))
	if last := bytes.TrimSpace(lines[len(lines)-1]); len(last) > 0 {
		return fmt.Sprintf("%v: %s", err, last)
	}
	return err.Error()
}

// asJSON makes a result of what a command has printed.
func asJSON(out []byte) (json.RawMessage, error) {
	out = bytes.TrimRight(out, "\r\n")
	switch {
	case len(out) == 0:
		return json.RawMessage("null"), nil
	case json.Valid(out):
		return out, nil
	}
	return json.Marshal(string(out))
}
