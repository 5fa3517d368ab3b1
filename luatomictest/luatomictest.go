// Package luatomictest gives tests a real server, and faults that real networks and servers have.
//
// The shared server is found or started at its first use, once for each test process:
//
//  1. LUATOMIC_REDIS_URL (redis://, rediss:// or unix://), when it is set;
//  2. a container, when TestMain passes Start of package container to [Main], with the build tag "container", and a
//     Docker engine answers; the image is LUATOMIC_REDIS_IMAGE, or redis:8 when that is not set;
//  3. redis-server or valkey-server from PATH, on a private unix socket, without persistence.
//
// With none of them the test fails and its error says what to install; nothing is skipped silently. Without a URL, a
// test that gets no container fails with LUATOMIC_REQUIRE=docker, and with LUATOMIC_REQUIRE=local none is started. If
// LUATOMIC_REDIS_IMAGE is set and a source has no container, the test fails too: a local server would not be the one
// that is named. A module that does not import package container does not depend on testcontainers. With
// LUATOMIC_PROTOCOL=2 the clients speak RESP2. Command withserver starts one server for the tests of many packages.
//
// Tests share the server, so each uses its own [Namespace]. A server that was started for the tests refuses what the
// others would notice: FLUSHALL, CONFIG SET, SCRIPT FLUSH, DEBUG and the like.
//
//	func TestMain(m *testing.M) { luatomictest.Main(m) } // or luatomictest.Main(m, container.Start)
//
//	func TestStock(t *testing.T) {
//		t.Parallel()
//		client, name := luatomictest.Client(t), luatomictest.Namespace(t)
//		...
//	}
//
// For tests that cannot share a server, [StartServer] starts a process for memory limits, kills, restarts and pauses,
// and [StartCluster] a cluster for slots and their migration. [NewLossyProxy] puts a proxy before any of them that
// loses chosen replies. [Embedded] is an in-process imitation for happy paths. It hides faults that real servers have,
// so it cannot validate a script.
package luatomictest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/luatomictest/internal/ready"
	"github.com/luatomic/luatomic/luatomictest/luacover"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// setupTimeout bounds a single exchange with a server while a test is being set up or cleaned up.
const setupTimeout = 10 * time.Second

// Main runs the tests of a package, stops the shared server if this process started it, fails when goroutines are
// left over, and exits. Call it from TestMain. It tries LUATOMIC_REDIS_URL, then the sources in their order, then a
// program on PATH. Package container has a source.
func Main(m *testing.M, sources ...Source) {
	shared.sources = sources
	code := m.Run()
	luacover.Flush()
	shared.close()
	if code == 0 {
		if err := leftOver(); err != nil {
			fmt.Fprintf(os.Stderr, "luatomictest: goroutines left over after the tests: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// URL returns the URL of the shared server, and starts it if necessary.
func URL(t testing.TB) string {
	t.Helper()
	url, err := shared.open(t.Logf)
	if err != nil {
		t.Fatalf("luatomictest: %v", err)
	}
	return url
}

// Client returns a client of the shared server that has answered a PING. It is closed when the test ends.
func Client(t testing.TB, opts ...func(*redis.Options)) *redis.Client {
	t.Helper()
	client := newClient(t, URL(t), opts)
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		t.Fatalf("luatomictest: the shared server does not answer: %v", err)
	}
	return client
}

// Embedded returns a client of an in-process imitation of Redis (miniredis), which this test alone uses. Keys expire
// there by real time. It needs nothing installed. Use it for happy paths only: it keeps digits that a real server
// loses, words errors differently, and has no cluster, no memory limit and no script kill. On a 32-bit system the test
// fails, because the imitation cuts numbers, times included, to 32 bits there.
func Embedded(t testing.TB) *redis.Client {
	t.Helper()
	server, err := launch.StartEmbedded()
	if err != nil {
		t.Fatalf("luatomictest: %v", err)
	}
	t.Cleanup(server.Close)
	return newClient(t, server.URL(), nil)
}

// Eventually polls cond until it is true. If it is not true within the given time, the test fails with the text what.
func Eventually(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
	if !ready.Within(within, cond) {
		t.Fatalf("not within %v: %s", within, what)
	}
}

func newClient(t testing.TB, url string, opts []func(*redis.Options)) *redis.Client {
	t.Helper()
	options, err := parseURL(url)
	if err != nil {
		t.Fatalf("luatomictest: %v", err)
	}
	options.Protocol = protocol()
	for _, opt := range opts {
		opt(options)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// protocol is the version of RESP that clients speak. 0 means go-redis' default.
func protocol() int {
	if os.Getenv("LUATOMIC_PROTOCOL") == "2" {
		return 2
	}
	return 0
}

// leftOver reports goroutines that do not end. On a busy machine a closed one can take some seconds to end.
func leftOver() error {
	var err error
	for range 12 {
		if err = goleak.Find(knownGoroutines()...); err == nil {
			return nil
		}
	}
	return err
}

// knownGoroutines lists goroutines of dependencies that outlive the tests by design.
func knownGoroutines() []goleak.Option {
	return []goleak.Option{
		// go-redis dials an unreachable server once a second, and checks only then whether its pool is closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
		// Idle keep-alive connections to the Docker engine.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		// The connection that tells the container reaper that this process is alive.
		goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"),
	}
}
