package luatomictest

import (
	"crypto/tls"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limits of the log of executed requests, which bound its memory in a long test with large payloads.
const (
	logRequests = 1 << 16
	logArgs     = 16
	logArgBytes = 128
)

// LossyProxy forwards traffic between a client and a server, and loses exactly the requests and replies that its rules
// name. It parses the protocol (RESP2 and RESP3, pipelines, pub/sub), so a test can choose the reply that never
// arrives:
//
//	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
//	proxy.Drop(1, luatomictest.Command("EVALSHA"))
//
// All methods may be called from any goroutine. A match is called for one request at a time, and must not call the
// proxy: it would wait for itself.
type LossyProxy struct {
	listener net.Listener
	gate     gate
	running  sync.WaitGroup

	mu       sync.Mutex
	upstream *redis.Options
	closed   bool
	conns    map[*lossyConn]struct{}
	rules    []*lossRule
	log      [][]string
	stats    LossyStats
}

// LossyStats counts the traffic of a LossyProxy since it started.
type LossyStats struct {
	Connections int // client connections accepted
	Requests    int // requests forwarded to the server
	Executed    int // requests that the server answered, lost replies included
	Lost        int // replies dropped by Drop
	Refused     int // requests that DropRequest kept from the server
}

type lossRule struct {
	left   int
	before bool
	match  func(args []string) bool
}

// NewLossyProxy starts a proxy on a loopback port in front of the server at upstreamURL (redis://, rediss:// or
// unix://). Clients connect to it over plain TCP. It is closed at the end of the test.
func NewLossyProxy(t testing.TB, upstreamURL string) *LossyProxy {
	t.Helper()
	upstream, err := parseURL(upstreamURL)
	if err != nil {
		t.Fatalf("luatomictest: lossy proxy: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("luatomictest: lossy proxy: %v", err)
	}
	p := &LossyProxy{upstream: upstream, listener: listener, conns: map[*lossyConn]struct{}{}}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the proxy's own host:port.
func (p *LossyProxy) Addr() string { return p.listener.Addr().String() }

// URL returns a redis:// URL of the proxy, with the user, password and database of the server behind it.
func (p *LossyProxy) URL() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := url.URL{Scheme: "redis", Host: p.Addr(), Path: "/" + strconv.Itoa(p.upstream.DB)}
	if p.upstream.Username != "" || p.upstream.Password != "" {
		u.User = url.UserPassword(p.upstream.Username, p.upstream.Password)
	}
	return u.String()
}

// Drop loses the replies to the next n matching requests: the server executes each of them, its reply is dropped and
// that client's connection is closed. Earlier replies of the same pipeline arrive. Later requests of the pipeline may
// have been executed too. A nil match takes every request, including the client's own HELLO. Rules add up, the oldest
// first.
func (p *LossyProxy) Drop(n int, match func(args []string) bool) { p.addRule(n, false, match) }

// DropRequest closes the connection when each of the next n matching requests arrives, before the server receives it.
func (p *LossyProxy) DropRequest(n int, match func(args []string) bool) { p.addRule(n, true, match) }

// Executed returns how many matching requests the server has answered, lost replies included. A nil match counts all.
// The log keeps at least the last 65536 requests, of each the first 16 arguments, of each argument the first 128
// bytes.
func (p *LossyProxy) Executed(match func(args []string) bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, args := range p.log {
		if match == nil || match(args) {
			n++
		}
	}
	return n
}

// Stats returns the counters so far.
func (p *LossyProxy) Stats() LossyStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// CutAll closes every connection. Requests in flight may or may not have been executed.
func (p *LossyProxy) CutAll() {
	p.mu.Lock()
	conns := make([]*lossyConn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	for _, c := range conns {
		c.close()
	}
}

// Redirect closes every connection, as CutAll does, and forwards later ones to another server. Clients see the same in
// a failover. From then on URL has the user, password and database of that server.
func (p *LossyProxy) Redirect(t testing.TB, upstreamURL string) {
	t.Helper()
	upstream, err := parseURL(upstreamURL)
	if err != nil {
		t.Fatalf("luatomictest: lossy proxy: %v", err)
	}
	p.mu.Lock()
	p.upstream = upstream
	p.mu.Unlock()
	p.CutAll()
}

// Blackhole(true) stops all traffic: connections stay open and new ones are accepted, but nothing passes in either
// direction. Blackhole(false) forwards the held traffic, so a request may be executed after its caller gave up, as on
// a real network.
func (p *LossyProxy) Blackhole(on bool) { p.gate.set(on) }

// Command returns a match for LossyProxy. It matches requests whose first arguments are words, in upper or lower case,
// as in Command("CLIENT", "SETINFO").
func Command(words ...string) func(args []string) bool {
	return func(args []string) bool {
		return len(args) >= len(words) && slices.EqualFunc(args[:len(words)], words, strings.EqualFold)
	}
}

func (p *LossyProxy) addRule(n int, before bool, match func(args []string) bool) {
	if match == nil {
		match = func([]string) bool { return true }
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &lossRule{left: n, before: before, match: match})
}

// decide returns what happens to one request and uses up one turn of the rule that matched it.
func (p *LossyProxy) decide(args []string) (lose, refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if r.left > 0 && r.match(args) {
			r.left--
			lose, refuse = !r.before, r.before
			break
		}
	}
	p.rules = slices.DeleteFunc(p.rules, func(r *lossRule) bool { return r.left <= 0 })
	if refuse {
		p.stats.Refused++
	} else {
		p.stats.Requests++
	}
	return lose, refuse
}

// executed records that the server answered a request.
func (p *LossyProxy) executed(request pending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Executed++
	if request.lose {
		p.stats.Lost++
	}
	if len(p.log) >= 2*logRequests { // rarely, as it copies
		p.log = slices.Clone(p.log[logRequests:])
	}
	p.log = append(p.log, request.args)
}

func (p *LossyProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *LossyProxy) serve(client net.Conn) {
	upstream, to, err := p.dial()
	if err != nil {
		_ = client.Close()
		return
	}
	c := newLossyConn(p, client, upstream)
	p.mu.Lock()
	p.stats.Connections++
	p.conns[c] = struct{}{}
	closed := p.closed || p.upstream != to
	p.mu.Unlock()
	if closed {
		c.close()
	}
	c.run()
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
}

// dial connects to the server. A connection to a server that Redirect has left meanwhile is of no use.
func (p *LossyProxy) dial() (net.Conn, *redis.Options, error) {
	p.mu.Lock()
	to := p.upstream
	p.mu.Unlock()
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	if to.TLSConfig != nil {
		conn, err := tls.DialWithDialer(dialer, to.Network, to.Addr, to.TLSConfig)
		return conn, to, err
	}
	conn, err := dialer.Dial(to.Network, to.Addr)
	return conn, to, err
}

func (p *LossyProxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.CutAll()
	p.running.Wait()
}
