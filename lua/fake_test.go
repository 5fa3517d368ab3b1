package lua_test

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// fakeServer sends the exact lines of a test. It is not a Redis server.
type fakeServer struct {
	listener net.Listener
	answer   func(verb string, nth int) string
	running  sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	counts map[string]int
}

// cutHere at the end of an answer cuts the connection after it, in the middle of a line.
const cutHere = "<cut>"

// startFake starts a server that asks answer for the reply to the nth request of each command, counted from 1. The
// empty answer cuts the connection. Connection commands (HELLO, CLIENT) have fixed answers.
func startFake(t testing.TB, answer func(verb string, nth int) string) *fakeServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fakeServer{listener: listener, answer: answer, counts: map[string]int{}}
	f.running.Go(f.accept)
	t.Cleanup(f.close)
	return f
}

func (f *fakeServer) client(t testing.TB, opts ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: f.listener.Addr().String(), Protocol: 2, DisableIdentity: true}
	for _, opt := range opts {
		opt(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func (f *fakeServer) count(verb string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[verb]
}

func (f *fakeServer) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		f.mu.Unlock()
		f.running.Go(func() {
			f.serve(conn)
			_ = conn.Close()
		})
	}
}

func (f *fakeServer) close() {
	_ = f.listener.Close()
	f.mu.Lock()
	for _, conn := range f.conns {
		_ = conn.Close()
	}
	f.mu.Unlock()
	f.running.Wait()
}

func (f *fakeServer) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		args, err := readRequest(in)
		if err != nil {
			return
		}
		reply := f.reply(args)
		part, cut := strings.CutSuffix(reply, cutHere)
		if reply == "" {
			return
		}
		if !cut {
			part += "\r\n"
		}
		if _, err := io.WriteString(conn, part); err != nil || cut {
			return
		}
	}
}

func (f *fakeServer) reply(args []string) string {
	verb := strings.ToUpper(args[0])
	switch verb {
	case "HELLO":
		return "-ERR unknown command 'HELLO'"
	case "CLIENT":
		return "+OK"
	case "SCRIPT":
		verb += " " + strings.ToUpper(args[1])
	}
	f.mu.Lock()
	f.counts[verb]++
	nth := f.counts[verb]
	f.mu.Unlock()
	return f.answer(verb, nth)
}

func readRequest(in *bufio.Reader) ([]string, error) {
	n, err := readLength(in)
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := readLength(in)
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, err
		}
		args[i] = string(text[:size])
	}
	return args, nil
}

func readLength(in *bufio.Reader) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
