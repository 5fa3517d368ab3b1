package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/internal/show"
)

var errURL = errors.New("-redis")

// emptyServer returns a client of the server at a URL, or of one that is started and stopped again.
func emptyServer(ctx context.Context, url string) (*redis.Client, func(), error) {
	if url == "" {
		return startServer(ctx)
	}
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errURL, show.UnquotedURL(err))
	}
	client := redis.NewClient(opts)
	if err := client.Ping(ctx).Err(); err != nil {
		_ = client.Close()
		return nil, nil, fmt.Errorf("no server answers at -redis: %w", err)
	}
	return client, func() { _ = client.Close() }, nil
}

// startServer starts a server on a socket of its own, without persistence.
func startServer(ctx context.Context) (*redis.Client, func(), error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		if binary, err = exec.LookPath("valkey-server"); err != nil {
			return nil, nil,
				errors.New("neither redis-server nor valkey-server is on PATH: install one, or name a server with " +
					"-redis")
		}
	}
	dir, socket, err := launch.SocketDir("luagen-")
	if err != nil {
		return nil, nil, err
	}
	server := &provingServer{dir: dir, ended: make(chan struct{})}
	if err := server.start(ctx, binary, socket); err != nil {
		server.stop()
		return nil, nil, fmt.Errorf("%s %w; name another server with -redis", binary, err)
	}
	return server.client, server.stop, nil
}

// provingServer is a server that prove has started.
type provingServer struct {
	client *redis.Client // nil until it has started
	dir    string
	cmd    *exec.Cmd
	guard  *launch.Watchdog // for the end that luagen cannot see
	said   bytes.Buffer     // read when it has ended
	ended  chan struct{}
}

const startsWithin = 30 * time.Second

// start returns when the server answers, or has ended. The socket is waited for: the client logs what it cannot reach.
func (s *provingServer) start(ctx context.Context, binary, socket string) error {
	s.cmd = exec.Command(binary, "--port", "0", "--unixsocket", socket, "--dir", s.dir, "--save", "",
		"--appendonly", "no")
	s.cmd.Stdout, s.cmd.Stderr = &s.said, &s.said
	s.cmd.WaitDelay = time.Second
	if err := s.cmd.Start(); err != nil {
		close(s.ended)
		return fmt.Errorf("does not start: %w", err)
	}
	s.guard = launch.StartWatchdog(launch.KillServer, strconv.Itoa(s.cmd.Process.Pid), s.dir)
	go func() { _ = s.cmd.Wait(); close(s.ended) }()
	s.client = redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	for end := time.Now().Add(startsWithin); time.Now().Before(end); {
		if _, err := os.Stat(socket); err == nil && s.client.Ping(ctx).Err() == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ended:
			return fmt.Errorf("ended: %v: %s", s.cmd.ProcessState, s.lastLine())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return fmt.Errorf("does not answer within %v", startsWithin)
}

func (s *provingServer) lastLine() string {
	lines := strings.Split(strings.TrimSpace(s.said.String()), "\n")
	return lines[len(lines)-1]
}

// stop ends the server, if it runs, and removes its folder.
func (s *provingServer) stop() {
	if s.client != nil {
		_ = s.client.Close()
		_ = s.cmd.Process.Kill()
	}
	<-s.ended
	s.guard.Dismiss()
	_ = os.RemoveAll(s.dir)
}
