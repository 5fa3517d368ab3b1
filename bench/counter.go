package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed programs/still.c
var still []byte

// counter is a server of its own under callgrind, which counts the instructions that the server executes.
type counter struct {
	ctx     context.Context
	server  *exec.Cmd
	exited  chan struct{} // closed when the server has ended
	dir     string
	url     string
	dumps   int
	version string // of the server, with its build
}

// counting are the functions whose instructions count, with all that they call: the read of a request, the command
// itself, and the write of a reply or of a message. The event loop, the timers and the expiry of keys are outside.
var counting = []string{"readQueryFromClient", "writeToClient"}

// startCounter starts the server and waits until it answers.
func startCounter(ctx context.Context, program string) (*counter, error) {
	for _, needed := range []string{"valgrind", "vgdb", "cc", program} {
		if _, err := exec.LookPath(needed); err != nil {
			return nil, fmt.Errorf("instructions are counted by callgrind, and %s is not on PATH: "+
				"apt-get install gcc libc6-dev redis-server valgrind", needed)
		}
	}
	dir, err := os.MkdirTemp("", "callgrind")
	if err != nil {
		return nil, err
	}
	library, err := compileStill(ctx, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	socket := filepath.Join(dir, "redis.sock")
	args := []string{"--tool=callgrind", "--vgdb-prefix=" + dir + "/vgdb", "--callgrind-out-file=" + dir + "/out"}
	for _, function := range counting {
		args = append(args, "--toggle-collect="+function)
	}
	// Under callgrind every call is a slow one: none may be written down as such.
	args = append(args, program, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--hz", "1",
		"--dynamic-hz", "no", "--activerehashing", "no", "--slowlog-log-slower-than", "-1")
	c := &counter{ctx: ctx, dir: dir, url: "unix://" + socket, exited: make(chan struct{}),
		server: exec.CommandContext(ctx, "valgrind", args...)}
	// The allocator gives memory back after a while of the clock, which is no work of the call that it falls on.
	c.server.Env = append(os.Environ(), "MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1",
		"LD_PRELOAD="+library)
	log := new(bytes.Buffer)
	c.server.Stdout, c.server.Stderr = log, log
	if err := c.server.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		_ = c.server.Wait() // killed by stop
		close(c.exited)
	}()
	if err := c.await(); err != nil {
		c.stop()
		return nil, fmt.Errorf("%w\n%s", err, log)
	}
	return c, nil
}

// compileStill makes the library that takes chance from a server.
func compileStill(ctx context.Context, dir string) (library string, err error) {
	source, library := filepath.Join(dir, "still.c"), filepath.Join(dir, "still.so")
	if err := os.WriteFile(source, still, 0o600); err != nil {
		return "", err
	}
	cc := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-O", "-o", library, source, "-ldl")
	if out, err := cc.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cc: %w: %s", err, bytes.TrimSpace(out))
	}
	return library, nil
}

func (c *counter) stop() {
	_ = c.server.Process.Kill()
	<-c.exited
	_ = os.RemoveAll(c.dir)
}

// client has one connection: calls come one after the other.
func (c *counter) client(connections int) *redis.Client {
	options, _ := redis.ParseURL(c.url) // a socket's path
	options.PoolSize, options.MaxRetries = connections, -1
	options.ReadTimeout, options.PoolTimeout = time.Minute, time.Minute
	return redis.NewClient(options)
}

func (c *counter) await() error {
	probe := c.client(1)
	defer probe.Close()
	for until := time.Now().Add(time.Minute); ; {
		err := probe.Ping(c.ctx).Err()
		if err == nil {
			break
		}
		select {
		case <-c.exited:
			return errors.New("the server under callgrind has ended")
		case <-c.ctx.Done():
			return c.ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(until) {
			return fmt.Errorf("the server under callgrind does not answer: %w", err)
		}
	}
	b := &bench{ctx: c.ctx, probe: probe}
	info, err := b.info("server")
	if err != nil {
		return err
	}
	name, err := b.serverVersion()
	c.version = name + " build " + info["redis_build_id"]
	return err
}

// count returns how many instructions the server executes for f.
func (c *counter) count(f func() error) (float64, error) {
	if err := c.order("zero"); err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	if err := c.order("dump"); err != nil {
		return 0, err
	}
	c.dumps++
	file := filepath.Join(c.dir, "out."+strconv.Itoa(c.dumps))
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return totalOf(text, file)
}

var totals = regexp.MustCompile(`(?m)^totals: (\d+)$`)

// totalOf reads the sum of a dump of callgrind.
func totalOf(dump []byte, file string) (float64, error) {
	m := totals.FindSubmatch(dump)
	if m == nil {
		return 0, fmt.Errorf("%s has no line of totals", file)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// order gives callgrind a command while the server sleeps.
func (c *counter) order(command string) error {
	vgdb := exec.CommandContext(c.ctx, "vgdb", "--wait=60", "--vgdb-prefix="+c.dir+"/vgdb",
		fmt.Sprintf("--pid=%d", c.server.Process.Pid), command)
	if out, err := vgdb.CombinedOutput(); err != nil {
		return fmt.Errorf("vgdb %s: %w: %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}
