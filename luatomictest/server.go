package luatomictest

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/luatomic/luatomic/internal/launch"
	"github.com/redis/go-redis/v9"
)

// Server is a server process for one test, on a loopback port, that the test may limit, kill, restart and pause. Its
// methods may be called from any goroutine; their errors mark the test as failed.
type Server struct {
	t testing.TB

	mu      sync.Mutex
	process *process
}

// StartServer starts redis-server or valkey-server from PATH for this test alone. The server ends with the test. args
// are its arguments. The first one may be a configuration file, whose settings the others override. The path of that
// file is relative to the folder of the test. Files that the arguments or the configuration name are relative to the
// server's own folder. Without a configuration file, the server makes no snapshots and no append-only file by default:
//
//	server := luatomictest.StartServer(t, "--maxmemory", "5mb", "--appendonly", "yes")
//
// Without a binary on PATH the test fails, and its error says what to install.
func StartServer(t testing.TB, args ...string) *Server {
	t.Helper()
	s, err := newServer(t, args)
	if err != nil {
		t.Fatalf("luatomictest: %v", err)
	}
	return s
}

func newServer(t testing.TB, args []string) (*Server, error) {
	var config []string // a configuration file is the first argument
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		file, err := filepath.Abs(args[0]) // the server runs in its own folder
		if err != nil {
			return nil, fmt.Errorf("configuration file: %w", err)
		}
		config, args = []string{file}, args[1:]
	} else {
		args = slices.Concat(inMemory, args) // they would override those of a file
	}
	p, err := newProcess(args)
	if err != nil {
		return nil, err
	}
	defaults := p.args
	// A process that is no test may take the port between the check and the start. Then the server exits immediately,
	// and the next port is tried.
	for try := range 5 {
		var port int
		if p.reserved != nil {
			_ = p.reserved.Close()
		}
		if port, p.reserved, err = freePort(try); err != nil {
			break
		}
		p.network, p.addr = "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		p.args = slices.Concat(config, []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1"}, defaults)
		if err = p.start(); !errors.Is(err, errExited) {
			break
		}
	}
	if err != nil {
		p.remove()
		return nil, err
	}
	s := &Server{t: t, process: p}
	t.Cleanup(s.remove)
	return s, nil
}

// Addr returns host:port. It stays the same over Restart.
func (s *Server) Addr() string { return s.process.addr }

// URL returns the redis:// URL.
func (s *Server) URL() string { return "redis://" + s.process.addr }

// Client returns a client of this server, closed when the test ends.
func (s *Server) Client(opts ...func(*redis.Options)) *redis.Client {
	s.t.Helper()
	return newClient(s.t, s.URL(), opts)
}

// Kill ends the process with SIGKILL and returns when it has exited. Data that was only in its memory is lost.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process.kill()
}

// Restart kills the process if it runs, and starts it again with the same port and directory. It returns when the
// server answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process.kill()
	if err := s.process.start(); err != nil {
		s.t.Errorf("luatomictest: restart: %v", err)
	}
}

// Pause stops the process (SIGSTOP): connections stay open, the kernel still accepts new ones, nothing answers.
func (s *Server) Pause() { s.signal(launch.Stop) }

// Resume continues a paused process (SIGCONT).
func (s *Server) Resume() { s.signal(launch.Continue) }

func (s *Server) signal(send func(pid int) error) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.process.running() {
		s.t.Errorf("luatomictest: the server at %s is not running", s.process.addr)
		return
	}
	if err := send(s.process.cmd.Process.Pid); err != nil {
		s.t.Errorf("luatomictest: signal the server at %s: %v", s.process.addr, err)
	}
}

func (s *Server) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process.remove()
}
