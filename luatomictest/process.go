package luatomictest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/luatomictest/internal/ready"
)

// readyWithin bounds the start of a server, including the load of its append-only file.
const readyWithin = 30 * time.Second

var errExited = errors.New("the server process ended")

// process is a server started from PATH, with its own directory.
type process struct {
	binary  string
	dir     string
	socket  string // a place for one
	args    []string
	network string
	addr    string

	cmd      *exec.Cmd
	exited   chan struct{}
	watchdog *launch.Watchdog
	reserved io.Closer // its port
}

// inMemory has the arguments of a server that keeps nothing on disk.
var inMemory = []string{"--save", "", "--appendonly", "no"}

// newProcess finds a binary and creates the directory. The extra arguments come last: of two equal options the server
// uses the last.
func newProcess(extra []string) (*process, error) {
	binary, err := findBinary()
	if err != nil {
		return nil, err
	}
	dir, socket, err := launch.SocketDir("luatomictest-")
	if err != nil {
		return nil, fmt.Errorf("server directory: %w", err)
	}
	args := []string{"--dir", dir, "--logfile", filepath.Join(dir, "server.log"), "--daemonize", "no"}
	return &process{binary: binary, dir: dir, socket: socket, args: append(args, extra...)}, nil
}

func findBinary() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("neither redis-server nor valkey-server on PATH: " + installHint)
}

// start runs the server and returns when it answers.
func (p *process) start() error {
	p.cmd = exec.Command(p.binary, p.args...)
	p.cmd.Dir = p.dir
	said, err := os.Create(filepath.Join(p.dir, beforeLog))
	if err != nil {
		return fmt.Errorf("server directory: %w", err)
	}
	p.cmd.Stdout, p.cmd.Stderr = said, said
	err = p.cmd.Start()
	_ = said.Close() // the server has its own
	if err != nil {
		return fmt.Errorf("start %s: %w", p.binary, err)
	}
	p.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait()
		close(exited)
	}(p.cmd, p.exited)
	p.watchdog = launch.StartWatchdog(launch.KillServer, strconv.Itoa(p.cmd.Process.Pid), p.dir)
	var ended bool
	answered := ready.Within(readyWithin, func() bool {
		ended = !p.running()
		return ended || ready.Answers(p.network, p.addr)
	})
	switch {
	case ended:
		p.watchdog.Dismiss()
		return fmt.Errorf("%w: %s: %s", errExited, filepath.Base(p.binary), p.lastLog())
	case !answered:
		p.kill()
		return fmt.Errorf("%s does not answer at %s within %v: %s", filepath.Base(p.binary), p.addr, readyWithin,
			p.lastLog())
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

// kill sends SIGKILL and waits until the process has ended.
func (p *process) kill() {
	if p.exited == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	p.watchdog.Dismiss()
}

func (p *process) remove() {
	p.kill()
	if p.reserved != nil {
		_ = p.reserved.Close()
	}
	_ = os.RemoveAll(p.dir)
}

// beforeLog is the file with a server's output before it opens its log, such as an argument that it refuses.
const beforeLog = "server.out"

func (p *process) lastLog() string {
	text, err := os.ReadFile(filepath.Join(p.dir, "server.log"))
	if err != nil || len(text) == 0 {
		text, err = os.ReadFile(filepath.Join(p.dir, beforeLog))
	}
	if err != nil || len(text) == 0 {
		return "it wrote no log; one of its arguments may be wrong: " + strings.Join(p.args, " ")
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// freePort finds a free loopback port whose port + 10000, the bus of a cluster node, is free too, and reserves it. Both
// are below the range of ephemeral ports.
func freePort(try int) (port int, reserved io.Closer, err error) {
	const low, span = 17000, 5000
	seed := os.Getpid()*7919 + int(time.Now().UnixNano()/1000) + try*104729
	for i := range 500 {
		port := low + (seed+i*37)%span
		reserved, err := reserve(port)
		if err != nil {
			continue
		}
		if canListen(port) && canListen(port+10000) {
			return port, reserved, nil
		}
		_ = reserved.Close()
	}
	return 0, nil, errors.New("no free loopback port found")
}

// reserve keeps the servers of all other tests, also in other processes, from the port until it is closed. A server
// that was killed leaves its port. Another server there would answer its clients and keep it from restarting. The
// reservation is a listener on port + 5000, which ends with this process, however the process ends.
func reserve(port int) (io.Closer, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+5000)))
}

func canListen(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}
