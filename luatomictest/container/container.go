//go:build container

package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/luatomictest/internal/ready"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	defaultImage   = "redis:8"
	serverPort     = "6379/tcp"
	readyLine      = "Ready to accept connections"
	containerStart = time.Minute
	imagePull      = 5 * time.Minute
	engineProbe    = time.Second      // where a local server will do
	engineWait     = 30 * time.Second // where it will not; without an engine the probe fails within milliseconds
)

var errNoEngine = errors.New("no Docker engine answers")

// Start runs the image LUATOMIC_REDIS_IMAGE, or redis:8 when that is not set, and returns when the server answers. An
// image that the engine does not have is pulled, for at most 5 minutes. It is a [luatomictest.Source].
//
// The probe for a Docker engine takes at most 1 second, and 30 seconds where a local server will not do: where
// LUATOMIC_REQUIRE is docker, or LUATOMIC_REDIS_IMAGE is set. The container is removed by Stop, or by testcontainers'
// reaper when the process is killed. With TESTCONTAINERS_RYUK_DISABLED=true a shell and the docker command do it.
func Start(log func(format string, args ...any)) (luatomictest.Shared, error) {
	image := os.Getenv("LUATOMIC_REDIS_IMAGE")
	if image == "" {
		image = defaultImage
	}
	provider, err := probeEngine()
	if err != nil {
		return luatomictest.Shared{}, err
	}
	defer func() { _ = provider.Close() }()
	if err := obtainImages(provider, image, log); err != nil {
		return luatomictest.Shared{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), containerStart)
	defer cancel()
	c, err := testcontainers.Run(ctx, image,
		testcontainers.WithExposedPorts(serverPort),
		testcontainers.WithWaitStrategy(wait.ForLog(readyLine).WithPollInterval(20*time.Millisecond)),
		testcontainers.WithLogger(new(silence)))
	if err != nil {
		_ = testcontainers.TerminateContainer(c)
		return luatomictest.Shared{}, fmt.Errorf("container of %s: %w", image, err)
	}
	stop := containerStop(c)
	addr, err := reachableAddr(ctx, c)
	if err != nil {
		stop()
		return luatomictest.Shared{}, err
	}
	return luatomictest.Shared{URL: "redis://" + addr, From: "container of " + image, Stop: stop}, nil
}

// probeEngine returns a connection to the engine, if one answers.
func probeEngine() (*testcontainers.DockerProvider, error) {
	limit := engineProbe
	if os.Getenv("LUATOMIC_REQUIRE") == "docker" || os.Getenv("LUATOMIC_REDIS_IMAGE") != "" {
		limit = engineWait
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	provider, err := testcontainers.NewDockerProvider(testcontainers.WithLogger(new(silence)))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoEngine, err)
	}
	if err := provider.Health(ctx); err != nil {
		_ = provider.Close()
		return nil, fmt.Errorf("%w: %w", errNoEngine, err)
	}
	return provider, nil
}

// obtainImages pulls the images before a container is made: testcontainers asks for the reaper's image only when the
// container exists, and leaves the container behind if it cannot be pulled.
func obtainImages(provider *testcontainers.DockerProvider, image string, log func(string, ...any)) error {
	needed := []string{image}
	if !provider.Config().Config.RyukDisabled {
		needed = append(needed, reaperImage())
	}
	for _, name := range needed {
		if err := obtainImage(provider, name, log); err != nil {
			return err
		}
	}
	return nil
}

// reaperImage names the image that testcontainers pulls for itself.
func reaperImage() string {
	//lint:ignore SA1019 no other exported name tells which image it is
	return testcontainers.ReaperDefaultImage
}

func obtainImage(provider *testcontainers.DockerProvider, name string, log func(string, ...any)) error {
	ctx, cancel := context.WithTimeout(context.Background(), imagePull)
	defer cancel()
	if _, err := provider.Client().ImageInspect(ctx, name); err == nil {
		return nil
	}
	log("luatomictest: pulling %s", name)
	// A refused pull is repeated for many minutes by default. After two refusals the next source has its turn.
	refusals := &pullRefusals{left: 2, giveUp: cancel}
	puller, err := testcontainers.NewDockerProvider(testcontainers.WithLogger(refusals))
	if err != nil {
		return fmt.Errorf("%w: %w", errNoEngine, err)
	}
	defer func() { _ = puller.Close() }()
	if err := puller.PullImage(ctx, name); err != nil {
		if refusals.last != nil {
			err = refusals.last
		}
		cure := "set LUATOMIC_REDIS_IMAGE to an image that the engine has"
		if name == reaperImage() {
			cure = "set TESTCONTAINERS_RYUK_DISABLED=true to do without it"
		}
		return fmt.Errorf("image %s cannot be pulled (%s): %w", name, cure, err)
	}
	return nil
}

// containerStop returns the function that removes the container. Without a reaper a watchdog removes it when this
// process is killed.
func containerStop(c *testcontainers.DockerContainer) func() {
	var guard *launch.Watchdog
	if docker, err := exec.LookPath("docker"); err == nil && testcontainers.ReadConfig().Config.RyukDisabled {
		guard = launch.StartWatchdog(`exec "$1" rm -f -v "$2" >/dev/null 2>&1`, docker, c.GetContainerID())
	}
	return func() {
		if err := testcontainers.TerminateContainer(c); err == nil {
			guard.Dismiss()
		}
	}
}

// reachableAddr finds the address at which the container answers. Which one it is depends on where the test itself
// runs: on the engine's host, in a container beside it, or in something that only looks like a container. The
// container's own address comes first on Linux: the engine relays a mapped port of the loopback through a process,
// which doubles the time of a round trip.
func reachableAddr(ctx context.Context, c *testcontainers.DockerContainer) (string, error) {
	port, err := c.MappedPort(ctx, serverPort)
	if err != nil {
		return "", fmt.Errorf("container port: %w", err)
	}
	var candidates, relayed []string
	if host, err := c.Host(ctx); err == nil {
		relayed = append(relayed, net.JoinHostPort(host, port.Port()))
	}
	relayed = append(relayed, net.JoinHostPort("127.0.0.1", port.Port()))
	if ip, err := c.ContainerIP(ctx); err == nil && ip != "" {
		candidates = append(candidates, net.JoinHostPort(ip, "6379"))
	}
	if runtime.GOOS == "linux" {
		candidates = append(candidates, relayed...)
	} else { // the engine is in a virtual machine, whose network this host does not reach
		candidates = append(relayed, candidates...)
	}
	var found string
	ready.Within(10*time.Second, func() bool {
		for _, addr := range candidates {
			if ready.Answers("tcp", addr) {
				found = addr
				return true
			}
		}
		return false
	})
	if found == "" {
		return "", fmt.Errorf("container answers at none of %s: set TESTCONTAINERS_HOST_OVERRIDE to the engine's host",
			strings.Join(candidates, ", "))
	}
	return found, nil
}

// silence drops the progress lines of testcontainers: a test prints through its own log.
type silence struct{}

func (*silence) Printf(string, ...any) {}

// pullRefusals reads from testcontainers' log that a pull was refused: nothing else reports it before the time is up.
type pullRefusals struct {
	left   int
	last   error
	giveUp func()
}

func (p *pullRefusals) Printf(format string, args ...any) {
	if !strings.HasPrefix(format, "Failed to pull image") {
		return
	}
	for _, arg := range args {
		if err, ok := arg.(error); ok {
			p.last = err
		}
	}
	if p.left--; p.left <= 0 {
		p.giveUp()
	}
}
