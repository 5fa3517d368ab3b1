package lua

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// command is the go-redis command of one attempt. go-redis must not send it again, because it does not know whether the
// script is safe to retry.
type command struct {
	redis.Cmd
	program program
}

// NoRetry keeps go-redis from sending the command a second time.
func (c *command) NoRetry() bool { return true }

// SetErr also records that a reply arrived. A cluster client sends a command again after a redirection or a failed
// dial, and keeps the first error when the connection is lost then: the error alone does not determine the outcome.
func (c *command) SetErr(err error) {
	if p := &c.program; p.waiting && (err == nil || isReply(err)) {
		p.waiting, p.answered = false, err == nil
	}
	c.Cmd.SetErr(err)
}

// program is the argument that identifies the script: its digest, for EVAL its text. go-redis calls MarshalBinary when
// it writes the command. So program knows whether a command was sent before its connection failed.
type program struct {
	script   *Script
	call     *Call // nil for the rows of several calls
	eval     bool
	sent     bool // written at least once
	waiting  bool // written, and no reply since
	answered bool // the last reply was a value
	guarded  bool
	digest   [40]byte
}

// MarshalBinary returns the bytes for the wire. For a call that was withdrawn they name a script that does nothing,
// because the other commands of its round trip are still sent.
func (p *program) MarshalBinary() ([]byte, error) {
	if p.call != nil && !p.call.phase.CompareAndSwap(idle, written) && p.call.phase.Load() == withdrawn {
		return p.nothing(), nil
	}
	p.sent, p.waiting = true, true
	if p.eval {
		return []byte(p.file().String()), nil
	}
	return append(p.digest[:0], p.file().SHA...), nil
}

// nothing returns bytes that make the server answer NOSCRIPT, or run an empty script.
func (p *program) nothing() []byte {
	if p.eval {
		return nil
	}
	return append(p.digest[:0], noDigest...)
}

const noDigest = "0000000000000000000000000000000000000000"

// String returns the text that tracing shows.
func (p *program) String() string { return p.file().SHA }

func (p *program) file() Text { return p.script.file(p.guarded) }

// Name returns the name by which a ClusterClient chooses a server, without "_ro". With that suffix, a client that may
// read from replicas would send the script to a replica. A replica may be behind, and does not have a script that was
// loaded at the master.
func (c *command) Name() string { return strings.TrimSuffix(c.Cmd.Name(), "_ro") }

// FullName returns the name that tracing shows.
func (c *command) FullName() string {
	return c.Cmd.Name() + " " + title(c.program.script.Name, c.program.guarded)
}

// prepare returns a new command for the next attempt. The command has its own arguments: a hook of the client may
// replace some, such as a key by one with a prefix, and must find those of the call at the next attempt.
func (c *Call) prepare(ctx context.Context, eval bool) *command {
	argv := append(c.sent[:0], c.argv...)
	argv[0], argv[1] = c.script.verb(eval), &c.cmd.program
	c.cmd = command{
		Cmd:     *redis.NewCmd(ctx, argv...),
		program: program{script: c.script, call: c, eval: eval, guarded: c.guarded},
	}
	return &c.cmd
}
