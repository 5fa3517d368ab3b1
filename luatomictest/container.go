package luatomictest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

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
	engineWait     = 30 * time.Second // where it will not; without an engine it is over at once all the same
)

var errNoEngine = errors.New("no Docker engine answers")

// startContainer starts the shared server in a container.
func startContainer(log logf) (url, source string, stop func(), err error) {
	image := os.Getenv("LUATOMIC_REDIS_IMAGE")
	if image == "" {
		image = defaultImage
	}
	provider, err := probeEngine()
	if err != nil {
		return "", "", nil, err
	}
	defer func() { _ = provider.Close() }()
	if err := obtainImages(provider, image, log); err != nil {
		return "", "", nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), containerStart)
	defer cancel()
	c, err := testcontainers.Run(ctx, image,
		testcontainers.WithExposedPorts(serverPort),
		testcontainers.WithWaitStrategy(wait.ForLog(readyLine).WithPollInterval(20*time.Millisecond)),
		testcontainers.WithLogger(new(silence)))
	if err != nil {
		_ = testcontainers.TerminateContainer(c)
		return "", "", nil, fmt.Errorf("container of %s: %w", image, err)
	}
	stop = containerStop(c)
	addr, err := reachableAddr(ctx, c)
	if err != nil {
		stop()
		return "", "", nil, err
	}
	return "redis://" + addr, "container of " + image, stop, nil
}

// probeEngine looks whether an engine answers.
func probeEngine() (*testcontainers.DockerProvider, error) {
	patience := engineProbe
	if os.Getenv("LUATOMIC_REQUIRE") == "docker" {
		patience = engineWait
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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

// obtainImages makes sure that the images are there before a container is made: the reaper's image is asked for only after the
// container exists, which would be left behind.
func obtainImages(provider *testcontainers.DockerProvider, image string, log logf) error {
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

// reaperImage names what testcontainers would pull unasked.
func reaperImage() string {
	//lint:ignore SA1019 no other exported name tells which image it is
	return testcontainers.ReaperDefaultImage
}

func obtainImage(provider *testcontainers.DockerProvider, name string, log logf) error {
	if _, err := provider.Client().ImageInspect(context.Background(), name); err == nil {
		return nil
	}
	log("luatomictest: pulling %s", name)
	ctx, cancel := context.WithTimeout(context.Background(), imagePull)
	defer cancel()
	// A refused pull is tried again for many minutes by default. Two refusals are enough to turn to the next source.
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
		cure := "set LUATOMIC_REDIS_IMAGE to an image that is there"
		if name == reaperImage() {
			cure = "set TESTCONTAINERS_RYUK_DISABLED=true to do without it"
		}
		return fmt.Errorf("image %s cannot be had (%s): %w", name, cure, err)
	}
	return nil
}

// containerStop returns what removes the container. Without a reaper a watchdog removes it too, should this process not come to it.
func containerStop(c *testcontainers.DockerContainer) func() {
	var guard *watchdog
	if docker, err := exec.LookPath("docker"); err == nil && testcontainers.ReadConfig().Config.RyukDisabled {
		guard = watch(`exec "$1" rm -f -v "$2" >/dev/null 2>&1`, docker, c.GetContainerID())
	}
	return func() {
		if err := testcontainers.TerminateContainer(c); err == nil {
			guard.dismiss()
		}
	}
}

// reachableAddr finds the address at which the container answers. Which one it is depends on where the test itself runs: on the
// engine's host, in a container beside it, or in something that only looks like a container.
func reachableAddr(ctx context.Context, c *testcontainers.DockerContainer) (string, error) {
	port, err := c.MappedPort(ctx, serverPort)
	if err != nil {
		return "", fmt.Errorf("container port: %w", err)
	}
	var candidates []string
	if host, err := c.Host(ctx); err == nil {
		candidates = append(candidates, net.JoinHostPort(host, port.Port()))
	}
	candidates = append(candidates, net.JoinHostPort("127.0.0.1", port.Port()))
	if ip, err := c.ContainerIP(ctx); err == nil && ip != "" {
		candidates = append(candidates, net.JoinHostPort(ip, "6379"))
	}
	var found string
	poll(10*time.Second, func() bool {
		for _, addr := range candidates {
			if answersPing("tcp", addr) {
				found = addr
				return true
			}
		}
		return false
	})
	if found == "" {
		return "", fmt.Errorf("container answers at none of %s: set TESTCONTAINERS_HOST_OVERRIDE to the engine's host", strings.Join(candidates, ", "))
	}
	return found, nil
}

// silence drops the progress lines of testcontainers: a test prints through its own log.
type silence struct{}

func (*silence) Printf(string, ...any) {}

// pullRefusals hears from testcontainers' log that a pull was refused, as nothing else tells before the time is up.
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
