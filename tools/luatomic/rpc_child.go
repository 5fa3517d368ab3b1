package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

// Codes of errors that a served command can give, beyond the library's.
const (
	codeTryLater  = "try_later"  // it ended with exit code 75
	codeBadResult = "bad_result" // its output is not JSON
)

// childOutput takes what a command writes to its stdout.
type childOutput interface {
	io.Writer
	// failed is why it stopped taking output, or nil.
	failed() error
}

// runChild runs the command for one call and returns how it ended.
func (c *rpcServeCmd) runChild(ctx context.Context, in []byte, out childOutput, env ...string) error {
	call, _ := rpc.CallFrom(ctx)
	cmd := exec.Command(c.path, c.s.child[1:]...)
	cmd.Args[0] = c.s.child[0]
	cmd.Env = append(os.Environ(),
		"LUATOMIC_METHOD="+call.Method,
		"LUATOMIC_CALL="+call.ID,
		"LUATOMIC_ATTEMPT="+strconv.Itoa(call.Attempt),
	)
	if deadline, ok := ctx.Deadline(); ok {
		cmd.Env = append(cmd.Env, "LUATOMIC_DEADLINE="+strconv.FormatInt(deadline.UnixMilli(), 10))
	}
	cmd.Env = append(cmd.Env, env...)
	said := &firstLine{to: c.s}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.input(in)), out, said
	running, err := c.s.startChild(cmd, false)
	if err != nil {
		c.s.warn(fmt.Errorf("call %q: %w", call.ID, err))
		return &rpc.RemoteError{Code: rpc.CodeInternal, Message: "the command cannot be started"}
	}
	err = c.s.await(ctx, running)
	switch unfinished, ok := errors.AsType[*unfinishedError](err); {
	case ok:
		c.s.warn(fmt.Errorf("call %q: %w; it is not answered", call.ID, unfinished))
		return c.left(unfinished)
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return fmt.Errorf("the command was killed: %s: %w", c.why(ctx), context.Cause(ctx))
	}
	return c.ended(running, out, said)
}

// left gives a call up without an answer, as a node that is gone does: another node can run it if it may run twice.
func (c *rpcServeCmd) left(unfinished error) error {
	if c.hero.dialect != "" {
		return fmt.Errorf("%w: %w", actionhero.ErrUnanswered, unfinished)
	}
	return &rpc.RemoteError{Code: rpc.CodeLeft, Message: unfinished.Error()}
}

// why is the reason that the context of a handler ended. Only the caller of a node that
// leaves receives it.
func (c *rpcServeCmd) why(ctx context.Context) string {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "the caller's deadline is over"
	case c.s.signals.stop.Err() != nil:
		return "its node has left"
	}
	return "the caller gave up"
}

// ended makes an answer of the way the command ended.
func (c *rpcServeCmd) ended(running *child, out childOutput, said *firstLine) error {
	if err := out.failed(); err != nil {
		return err
	}
	err := running.err()
	if err == nil {
		return nil
	}
	e := &rpc.RemoteError{Code: rpc.CodeError, Message: said.text()}
	if running.code == exitTryLater {
		e.Code = codeTryLater
	}
	if e.Message == "" {
		e.Message = err.Error()
	}
	return e
}

// input is the request as the command reads it.
func (c *rpcServeCmd) input(body []byte) []byte {
	var text string
	if c.text && json.Unmarshal(body, &text) == nil {
		return []byte(text)
	}
	return body
}

// form is the command's output as the caller reads it.
func (c *rpcServeCmd) form(output []byte) ([]byte, error) {
	if c.text {
		if !utf8.Valid(output) {
			return nil, &rpc.RemoteError{Code: codeBadResult, Message: "the command's output is not text in UTF-8"}
		}
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(strings.TrimSuffix(string(output), "\n")); err != nil {
			return nil, err
		}
		return bytes.TrimSpace(text.Bytes()), nil
	}
	switch output = bytes.TrimSpace(output); {
	case len(output) == 0:
		return []byte("null"), nil
	case !json.Valid(output):
		return nil, &rpc.RemoteError{Code: codeBadResult,
			Message: "the command's output is not JSON; rpc serve --text makes a string of it"}
	}
	return output, nil
}

// tooLarge is the caller's error for an output that no reply can hold.
func tooLarge() error {
	message := fmt.Sprintf("the command's output is larger than %d bytes", queue.MaxBatchBytes)
	return &rpc.RemoteError{Code: rpc.CodeTooLarge, Message: message}
}

// resultWriter keeps an output of bounded size. Beyond it, the command's writes fail.
type resultWriter struct {
	text []byte
	over error
}

func (w *resultWriter) Write(p []byte) (int, error) {
	if len(w.text)+len(p) > queue.MaxBatchBytes {
		w.over = tooLarge()
		return 0, w.over
	}
	w.text = append(w.text, p...)
	return len(p), nil
}

func (w *resultWriter) failed() error { return w.over }

// lineWriter passes each line on as it comes. A last line without an end counts too.
type lineWriter struct {
	line func([]byte) error
	rest []byte
	err  error
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for w.err == nil {
		line, rest, ok := bytes.Cut(w.rest, []byte{'\n'})
		if !ok {
			break
		}
		w.err = w.line(line)
		w.rest = rest
	}
	if w.err == nil && len(w.rest) > queue.MaxBatchBytes {
		w.err = tooLarge()
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

func (w *lineWriter) failed() error { return w.err }

// end passes the remaining text on when the command has ended.
func (w *lineWriter) end() error {
	if w.err == nil && len(w.rest) > 0 {
		w.err = w.line(w.rest)
	}
	return w.err
}

// firstLine passes on what a command prints, and keeps the first line that is not blank.
type firstLine struct {
	to   io.Writer
	kept []byte
	full bool
}

// maxSaid is how much of a line travels as the message of an error.
const maxSaid = 1000

func (f *firstLine) Write(p []byte) (int, error) {
	if !f.full {
		f.keep(p)
	}
	return f.to.Write(p)
}

func (f *firstLine) keep(p []byte) {
	f.kept = bytes.TrimLeft(append(f.kept, p[:min(len(p), 4*maxSaid)]...), " \t\r\n")
	if i := bytes.IndexByte(f.kept, '\n'); i >= 0 {
		f.kept, f.full = f.kept[:i], true
	}
	if len(f.kept) > maxSaid {
		f.kept, f.full = f.kept[:maxSaid], true
	}
}

// text is the line, as valid text.
func (f *firstLine) text() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(f.kept), ""))
}
