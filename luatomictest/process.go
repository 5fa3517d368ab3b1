package luatomictest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// readyWithin bounds the start of a server, the load of its append-only file included.
const readyWithin = 30 * time.Second

var errExited = errors.New("the server process ended")

// process is a server started from PATH, with a directory of its own.
type process struct {
	binary  string
	dir     string
	args    []string
	network string
	addr    string

	cmd      *exec.Cmd
	exited   chan struct{}
	watchdog *watchdog
}

// newProcess finds a binary and makes the directory. The extra arguments come last: the server lets the last one win.
func newProcess(extra []string) (*process, error) {
	binary, err := findBinary()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "luatomictest-")
	if err != nil {
		return nil, fmt.Errorf("server directory: %w", err)
	}
	args := []string{"--dir", dir, "--logfile", filepath.Join(dir, "server.log"), "--save", "", "--appendonly", "no", "--daemonize", "no"}
	return &process{binary: binary, dir: dir, args: append(args, extra...)}, nil
}

func findBinary() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("neither redis-server nor valkey-server on PATH: " + installHint)
}

func (p *process) socket() string { return filepath.Join(p.dir, "s.sock") }

// start runs the server and returns when it answers.
func (p *process) start() error {
	p.cmd = exec.Command(p.binary, p.args...)
	p.cmd.Dir = p.dir
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.binary, err)
	}
	p.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait()
		close(exited)
	}(p.cmd, p.exited)
	p.watchdog = watch(`kill -9 "$1"; rm -rf "$2"`, strconv.Itoa(p.cmd.Process.Pid), p.dir)
	var ended bool
	ready := poll(readyWithin, func() bool {
		ended = !p.running()
		return ended || answersPing(p.network, p.addr)
	})
	switch {
	case ended:
		p.watchdog.dismiss()
		return fmt.Errorf("%w: %s: %s", errExited, filepath.Base(p.binary), p.lastLog())
	case !ready:
		p.kill()
		return fmt.Errorf("%s does not answer at %s within %v: %s", filepath.Base(p.binary), p.addr, readyWithin, p.lastLog())
	}
	return nil
}

func (p *process) running() bool {
	if p.exited == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the process without a word to it and waits until it is gone.
func (p *process) kill() {
	if p.exited == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	p.watchdog.dismiss()
}

func (p *process) remove() {
	p.kill()
	_ = os.RemoveAll(p.dir)
}

func (p *process) lastLog() string {
	text, err := os.ReadFile(filepath.Join(p.dir, "server.log"))
	if err != nil || len(text) == 0 {
		return "it wrote no log; one of its arguments may be wrong: " + strings.Join(p.args, " ")
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// answersPing speaks the protocol by hand: a client library would retry, pool and wait in its own way.
func answersPing(network, addr string) bool {
	conn, err := net.DialTimeout(network, addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	reply := make([]byte, 64)
	n, _ := conn.Read(reply)
	// A server that asks for a password is up.
	return slices.ContainsFunc([]string{"+PONG", "-NOAUTH"}, func(s string) bool { return strings.HasPrefix(string(reply[:n]), s) })
}

// freePort finds a loopback port that is free together with the one 10000 above it, where a cluster node opens its bus. It stays below
// the range that outgoing connections draw from.
func freePort(try int) (int, error) {
	const low, span = 20000, 10000
	seed := os.Getpid()*7919 + int(time.Now().UnixNano()/1000) + try*104729
	for i := range 500 {
		port := low + (seed+i*37)%span
		if canListen(port) && canListen(port+10000) {
			return port, nil
		}
	}
	return 0, errors.New("no free loopback port found")
}

func canListen(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// watchdog is a shell that waits for this process to end, however it ends, and then cleans up. Without it a test binary that panics,
// times out or is killed would leave servers running. It ignores the signals that a terminal sends to the whole group.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.Closer
}

// watch starts a watchdog that runs script with $1, $2 ... when this process is gone. Where there is no shell it does nothing.
func watch(script string, args ...string) *watchdog {
	read, write, err := os.Pipe()
	if err != nil {
		return nil
	}
	defer func() { _ = read.Close() }()
	cmd := exec.Command("sh", append([]string{"-c", "trap '' INT TERM HUP; read _; " + script, "watchdog"}, args...)...)
	cmd.Stdin = read
	if err := cmd.Start(); err != nil {
		_ = write.Close()
		return nil
	}
	return &watchdog{cmd: cmd, pipe: write}
}

// dismiss ends the watchdog before it acts.
func (w *watchdog) dismiss() {
	if w == nil {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
	_ = w.pipe.Close()
}
