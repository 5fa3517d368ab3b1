// Withserver runs a command with one server for all its tests, so that each package does not start one of its own:
//
//	go run github.com/luatomic/luatomic/luatomictest/withserver go test ./...
//
// The server is that of LUATOMIC_REDIS_URL if it is set. Else it is redis-server or valkey-server from PATH; built with
// "-tags container" it is a container where a Docker engine answers, as package luatomictest describes. The command has
// its URL in LUATOMIC_REDIS_URL, and withserver exits with the command's code. Clients of the server may not flush it,
// configure it, or do what else the other tests would notice: such tests start a server of their own.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/luatomictest/internal/ready"
)

// sources are the ways to a server besides a program on PATH.
var sources []luatomictest.Source

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: withserver COMMAND [ARGUMENT...], such as: withserver go test ./...")
		os.Exit(2)
	}
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "withserver:", err)
	}
	os.Exit(code)
}

// run starts the server and the command, and stops both. A signal of a terminal reaches the command by itself; it ends,
// and then the server.
func run(words []string) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server, err := luatomictest.Open(logf, sources...)
	if err != nil {
		return 1, err
	}
	if server.Stop != nil {
		defer server.Stop()
		options, err := redis.ParseURL(server.URL)
		if err == nil {
			err = ready.Restrict(ctx, options)
		}
		if err != nil {
			return 1, err
		}
	}
	logf("one server for all packages: %s", server.From)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "LUATOMIC_REDIS_URL="+server.URL)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return max(1, failed.ExitCode()), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
