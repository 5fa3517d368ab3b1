// Package subprocess runs programs beside a test, such as those in other languages that share their keys with the
// packages under compat.
package subprocess

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// Find returns the first program whose probe succeeds; a probe is a program and the arguments with which it must exit
// 0. If none does, the test is skipped with the command that installs one. It fails where CI or LUATOMIC_REQUIRE is
// set.
func Find(t testing.TB, install string, probes ...[]string) string {
	t.Helper()
	var tried []error
	for _, probe := range probes {
		out, err := exec.CommandContext(t.Context(), probe[0], probe[1:]...).CombinedOutput()
		if err == nil {
			return probe[0]
		}
		tried = append(tried, fmt.Errorf("%q: %w: %s", probe, err, bytes.TrimSpace(out)))
	}
	none := fmt.Sprintf("a program is not installed; %s\n%v", install, errors.Join(tried...))
	if os.Getenv("CI") != "" || os.Getenv("LUATOMIC_REQUIRE") != "" {
		t.Fatal(none)
	}
	t.Skip(none)
	return ""
}

// A Program runs until the test ends. It reads and writes lines.
type Program struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan []byte
	stderr output
	ended  chan struct{} // closed when it has exited
	err    error         // its exit; set before ended is closed
}

// output collects a program's stderr.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// Start starts the command, and kills it when the test ends. Its stderr is logged if
// the test fails.
func Start(t testing.TB, cmd *exec.Cmd) *Program {
	t.Helper()
	p := &Program{t: t, cmd: cmd, lines: make(chan []byte, 1024), ended: make(chan struct{})}
	cmd.Stderr = &p.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	go p.read(stdout)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s wrote to stderr:\n%s", cmd.Path, p.stderr.String())
		}
	})
	return p
}

func (p *Program) read(stdout io.Reader) {
	in := bufio.NewScanner(stdout)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		p.lines <- bytes.Clone(in.Bytes())
	}
	close(p.lines)
	p.err = p.cmd.Wait()
	close(p.ended)
}

// Send writes v as one line of JSON.
func (p *Program) Send(v any) {
	p.t.Helper()
	line, err := json.Marshal(v)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.stdin.Write(append(line, '\n')); err != nil {
		p.t.Fatalf("%s does not read its stdin: %v\n%s", p.cmd.Path, err, p.stderr.String())
	}
}

// Line returns the next line of stdout. The test fails if none arrives in time.
func (p *Program) Line(within time.Duration) []byte {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatalf("%s has ended\n%s", p.cmd.Path, p.stderr.String())
		}
		return line
	case <-time.After(within):
		p.t.Fatalf("no line from %s within %v\n%s", p.cmd.Path, within, p.stderr.String())
	}
	return nil
}

// Ask sends v and decodes the next line into reply.
func (p *Program) Ask(v, reply any) {
	p.t.Helper()
	p.Send(v)
	line := p.Line(30 * time.Second)
	if err := json.Unmarshal(line, reply); err != nil {
		p.t.Fatalf("%s: %v in %q", p.cmd.Path, err, line)
	}
}

// End closes stdin, and returns the program's exit error.
func (p *Program) End() error {
	_ = p.stdin.Close()
	<-p.ended
	return p.err
}

// Running reports whether the program has not ended.
func (p *Program) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Kill ends the program with SIGKILL, like a crash.
func (p *Program) Kill() {
	_ = p.cmd.Process.Kill()
	for range p.lines { // its reader may be blocked on a line
	}
	<-p.ended
}

// Stderr returns the program's stderr so far.
func (p *Program) Stderr() string { return p.stderr.String() }

// Signal sends a signal.
func (p *Program) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}
