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

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/luatomictest/internal/ready"
)

// errNoSource says why a package gets no container.
var errNoSource = errors.New("the tests of this package start none: " +
	"import luatomictest/container and call luatomictest.Main(m, container.Start) in TestMain")

// installHint is the cure when no server is found.
const installHint = "install a server (Debian, Ubuntu: apt-get install redis-server; Fedora: dnf install valkey; " +
	"macOS: brew install redis), set LUATOMIC_REDIS_URL, or start a Docker engine for tests that take containers"

// shared is the one server of this test process. It has to be a package variable: Go runs all tests of a package in one
// process, and only the process outlives them.
var shared = new(sharedServer)

// Source starts a shared server, once for a test process, when the first test asks for one. It logs what takes long,
// such as a download. An error says why the source has no server, and the next source is asked. Package container has a
// Source.
type Source func(log func(format string, args ...any)) (Shared, error)

// Shared is a server that a [Source] has started.
type Shared struct {
	URL  string // redis://, rediss:// or unix://
	From string // what was started, for the log: "container of redis:8"
	Stop func() // called once when the tests are over; nil: there is nothing to stop
}

// sharedServer starts at its first use and remembers the result.
type sharedServer struct {
	sources []Source // set before the tests run

	mu   sync.Mutex
	done bool
	got  Shared
	err  error
}

// open returns the server's URL, starting the server if no call has tried yet.
func (s *sharedServer) open(log func(format string, args ...any)) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return s.got.URL, s.err
	}
	s.done = true
	s.got, s.err = chooseServer(s.sources, log)
	if s.err != nil {
		return "", s.err
	}
	options, err := parseURL(s.got.URL)
	if err != nil {
		s.err = fmt.Errorf("%s: %w", s.got.From, err)
		return "", s.err
	}
	version, err := serverVersion(options)
	if err != nil {
		s.err = fmt.Errorf("%s does not answer: %w", s.got.From, err)
		return "", s.err
	}
	if s.got.Stop != nil { // it was started for these tests
		if s.err = ready.Restrict(context.Background(), options); s.err != nil {
			return "", s.err
		}
	}
	log("luatomictest: %s, %s", version, s.got.From)
	return s.got.URL, nil
}

// Open starts or finds a server in the order of the package comment, for a program that is no test, such as a
// benchmark. If Stop is set, the caller must call it.
func Open(log func(format string, args ...any), sources ...Source) (Shared, error) {
	return chooseServer(sources, log)
}

// opened returns the URL if the server is in use, else "".
func (s *sharedServer) opened() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return ""
	}
	return s.got.URL
}

func (s *sharedServer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.got.Stop != nil {
		s.got.Stop()
	}
	s.done, s.got, s.err = true, Shared{}, errors.New("the shared server has been stopped: the tests are over")
}

// chooseServer applies the order in the package comment.
func chooseServer(sources []Source, log func(format string, args ...any)) (Shared, error) {
	if err := checkVariables(); err != nil {
		return Shared{}, err
	}
	if url := os.Getenv("LUATOMIC_REDIS_URL"); url != "" {
		return Shared{URL: url, From: "LUATOMIC_REDIS_URL"}, nil
	}
	required := os.Getenv("LUATOMIC_REQUIRE")
	if required == "local" {
		return startShared()
	}
	failed := errNoSource
	for _, start := range sources {
		var got Shared
		if got, failed = start(log); failed == nil {
			return got, nil
		}
	}
	switch { // a local server is another one than the one that is named
	case required == "docker":
		return Shared{}, fmt.Errorf("LUATOMIC_REQUIRE is docker, but no container: %w", failed)
	case len(sources) > 0 && os.Getenv("LUATOMIC_REDIS_IMAGE") != "":
		return Shared{}, fmt.Errorf("LUATOMIC_REDIS_IMAGE is set, but no container: %w", failed)
	case len(sources) > 0:
		log("luatomictest: no container, a local server is tried: %v", failed)
	}
	return startShared()
}

// checkVariables refuses a value that no code looks for: a misspelled one would let tests pass on another server.
func checkVariables() error {
	for _, v := range []struct{ name, one, other string }{
		{"LUATOMIC_REQUIRE", "docker", "local"}, {"LUATOMIC_PROTOCOL", "2", "3"},
	} {
		if value := os.Getenv(v.name); value != "" && value != v.one && value != v.other {
			return fmt.Errorf("%s is %q: it can be %s or %s", v.name, value, v.one, v.other)
		}
	}
	return nil
}

// startShared starts a local server on a unix socket: there is no port to collide, and no other program connects to it.
func startShared() (Shared, error) {
	p, err := newProcess(inMemory)
	if err != nil {
		return Shared{}, err
	}
	p.args = append([]string{"--port", "0", "--unixsocket", p.socket}, p.args...)
	p.network, p.addr = "unix", p.socket
	if err := p.start(); err != nil {
		p.remove()
		return Shared{}, err
	}
	return Shared{URL: "unix://" + p.addr, From: p.binary, Stop: p.remove}, nil
}

// parseURL reads the URL of a server.
func parseURL(url string) (*redis.Options, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("server URL: %w", show.UnquotedURL(err))
	}
	return options, nil
}

// serverVersion returns the server's own name and version.
func serverVersion(options *redis.Options) (string, error) {
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
