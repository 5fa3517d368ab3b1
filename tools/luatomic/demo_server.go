package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/launch"
)

// privateServer is a server of the demo's own, which no other process uses.
type privateServer struct {
	url   string
	about string
	close func()
}

// startPrivate starts a server from PATH on a unix socket in a new folder or,
// where there is none, an imitation inside this process.
func startPrivate(ctx context.Context, s *session) (*privateServer, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		server, err := startBinary(ctx, s, path)
		if err == nil {
			return server, nil
		}
		if ctx.Err() != nil {
			return nil, errInterrupted
		}
		s.note("%s does not start (%v); going on without it", name, err)
	}
	server, err := launch.StartEmbedded()
	if err != nil {
		return nil, err
	}
	return &privateServer{
		url: server.URL(), close: server.Close,
		about: "miniredis, an imitation of Redis inside this process; " +
			"with redis-server or valkey-server on PATH the demo uses that",
	}, nil
}

const startWithin = 20 * time.Second

func startBinary(ctx context.Context, s *session, path string) (*privateServer, error) {
	dir, socket, err := launch.SocketDir("luatomic-demo-")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--dir", dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	running, err := s.startChild(cmd, false)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	server := &privateServer{
		url:   "unix://" + socket,
		about: path + " on a private socket in " + dir,
		close: func() {
			signalGroup(cmd, syscall.SIGKILL) // there is nothing to keep
			<-running.done
			_ = os.RemoveAll(dir)
		},
	}
	if err := awaitServer(ctx, socket, running); err != nil {
		server.close()
		if text := lastLine(log.String()); text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return nil, err
	}
	return server, nil
}

// awaitServer returns when the server answers.
func awaitServer(ctx context.Context, socket string, running *child) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = client.Close() }()
	for client.Ping(ctx).Err() != nil {
		select {
		case <-running.done:
			return errors.New("it ended while starting")
		case <-ctx.Done():
			return fmt.Errorf("no answer within %v", startWithin)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
