package luatomictest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// installHint is what a user reads when there is no server at all.
const installHint = "install a server (Debian, Ubuntu: apt-get install redis-server; Fedora: dnf install valkey; macOS: brew install redis), " +
	"start a Docker engine, or set LUATOMIC_REDIS_URL"

// shared is the one server of this test process. It is package state by nature: Go runs all tests of a package in one process, and
// nothing but the process outlives them.
var shared = new(sharedServer)

// sharedServer starts at its first use and remembers how that went.
type sharedServer struct {
	mu   sync.Mutex
	done bool
	url  string
	err  error
	stop func()
}

type logf func(format string, args ...any)

// open returns the server's URL, starting the server if no call has tried yet.
func (s *sharedServer) open(log logf) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return s.url, s.err
	}
	s.done = true
	var source string
	s.url, source, s.stop, s.err = chooseServer(log)
	if s.err != nil {
		return "", s.err
	}
	version, err := serverVersion(s.url)
	if err != nil {
		s.err = fmt.Errorf("%s does not answer: %w", source, err)
		return "", s.err
	}
	log("luatomictest: %s, %s", version, source)
	return s.url, nil
}

// opened returns the URL if the server is in use, else "".
func (s *sharedServer) opened() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return ""
	}
	return s.url
}

func (s *sharedServer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	s.done, s.url, s.err = true, "", errors.New("the shared server has been stopped: the tests are over")
}

// chooseServer applies the order in the package comment.
func chooseServer(log logf) (url, source string, stop func(), err error) {
	if url := os.Getenv("LUATOMIC_REDIS_URL"); url != "" {
		return url, "LUATOMIC_REDIS_URL", nil, nil
	}
	require := os.Getenv("LUATOMIC_REQUIRE")
	if require != "local" {
		url, source, stop, err = startContainer(log)
		if err == nil {
			return url, source, stop, nil
		}
		if require == "docker" {
			return "", "", nil, fmt.Errorf("LUATOMIC_REQUIRE is docker, but no container: %w", err)
		}
		if !errors.Is(err, errNoEngine) {
			log("luatomictest: no container, trying a local server: %v", err)
		}
	}
	return startShared()
}

// startShared starts a local server on a unix socket: no port to collide with, and nobody else can reach it.
func startShared() (url, source string, stop func(), err error) {
	p, err := newProcess(nil)
	if err != nil {
		return "", "", nil, err
	}
	p.args = append([]string{"--port", "0", "--unixsocket", p.socket()}, p.args...)
	p.network, p.addr = "unix", p.socket()
	if err := p.start(); err != nil {
		p.remove()
		return "", "", nil, err
	}
	return "unix://" + p.addr, p.binary, p.remove, nil
}

// serverVersion returns the server's own name and version.
func serverVersion(url string) (string, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return "", err
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		// A service may refuse INFO and still be a good server.
		return "server of unknown version", client.Ping(ctx).Err()
	}
	fields := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			fields[name] = value
		}
	}
	if v := fields["valkey_version"]; v != "" {
		return "valkey " + v, nil
	}
	return "redis " + fields["redis_version"], nil
}
