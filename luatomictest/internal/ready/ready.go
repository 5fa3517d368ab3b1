// Package ready waits until a condition holds or a server answers.
package ready

import (
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// Within polls cond immediately, then at growing intervals of 1 to 20 ms, and a last time at the deadline. It reports
// whether cond became true.
func Within(within time.Duration, cond func() bool) bool {
	deadline, pause := time.Now().Add(within), time.Millisecond
	for !cond() {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		time.Sleep(min(pause, left))
		pause = min(2*pause, 20*time.Millisecond)
	}
	return true
}

// Answers reports whether a Redis server answers a PING at the address. It writes the protocol itself: a client
// library would retry, pool and wait in its own way.
func Answers(network, addr string) bool {
	conn, err := net.DialTimeout(network, addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	reply := make([]byte, 64)
	n, _ := conn.Read(reply)
	// A server that requires a password is up.
	return slices.ContainsFunc([]string{"+PONG", "-NOAUTH"}, func(prefix string) bool {
		return strings.HasPrefix(string(reply[:n]), prefix)
	})
}
