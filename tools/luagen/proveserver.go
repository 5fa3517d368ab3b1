package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
)

var errURL = errors.New("-redis")

// emptyServer returns a client of the server at a URL, or of one that is started and stopped again.
func emptyServer(ctx context.Context, url string) (*redis.Client, func(), error) {
	if url == "" {
		return startServer(ctx)
	}
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errURL, err)
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
			return nil, nil, errors.New("neither redis-server nor valkey-server is on PATH: install one, or name a server with -redis")
		}
	}
	dir, err := os.MkdirTemp("", "luagen-")
	if err != nil {
		return nil, nil, err
	}
	socket := filepath.Join(dir, "s.sock")
	cmd := exec.Command(binary, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, fmt.Errorf("%s does not start: %w", binary, err)
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	release := func() {
		_ = client.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	}
	for end := time.Now().Add(30 * time.Second); client.Ping(ctx).Err() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) || ctx.Err() != nil {
			release()
			return nil, nil, fmt.Errorf("%s does not answer within 30 s", binary)
		}
	}
	return client, release, nil
}
