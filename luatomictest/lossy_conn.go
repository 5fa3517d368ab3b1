package luatomictest

import (
	"bufio"
	"net"
	"strings"
	"sync"
	"time"
)

// drainFor is how long a connection whose client has disconnected waits for the replies to its requests.
const drainFor = 2 * time.Second

// pending is a request that the server has not answered yet.
type pending struct {
	args []string
	lose bool
	// channels still to be confirmed; the replies to such a request are pub/sub frames, one for each channel
	subscribe int
}

// lossyConn is one client connection with its connection to the server.
type lossyConn struct {
	proxy            *LossyProxy
	client, upstream net.Conn
	done             chan struct{}
	closeOnce        sync.Once

	mu          sync.Mutex
	queue       []pending
	clientGone  bool
	subscribing bool // after a SUBSCRIBE: RESP2 pub/sub frames are possible
	pushes      bool // after a RESP3 push: arrays are plain replies again
}

func newLossyConn(p *LossyProxy, client, upstream net.Conn) *lossyConn {
	return &lossyConn{proxy: p, client: client, upstream: upstream, done: make(chan struct{})}
}

func (c *lossyConn) run() {
	var requests sync.WaitGroup
	requests.Go(c.requests)
	c.replies()
	c.close()
	requests.Wait()
}

func (c *lossyConn) close() {
	c.closeOnce.Do(func() {
		close(c.done)
		_ = c.client.Close()
		_ = c.upstream.Close()
	})
}

// requests forwards requests to the server until the client disconnects or a rule closes the connection.
func (c *lossyConn) requests() {
	in, out := bufio.NewReaderSize(c.client, 1<<16), bufio.NewWriterSize(c.upstream, 1<<16)
	defer c.endOfRequests()
	var buf []byte
	for {
		args, raw, err := readRequest(in, buf[:0])
		if err != nil || !c.proxy.gate.wait(c.done) {
			return
		}
		buf = raw
		lose, refuse := c.proxy.decide(args)
		if refuse {
			_ = out.Flush()
			return
		}
		c.expect(args, lose)
		if _, err := out.Write(raw); err != nil {
			return
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return
			}
		}
	}
}

// endOfRequests lets the server finish its requests. An immediate close would drop the requests that it has not read.
func (c *lossyConn) endOfRequests() {
	c.mu.Lock()
	c.clientGone = true
	idle := len(c.queue) == 0
	c.mu.Unlock()
	_ = c.client.Close()
	if idle {
		c.close()
		return
	}
	_ = c.upstream.SetReadDeadline(time.Now().Add(drainFor))
}

// replies forwards replies, matches each to its request, and closes the client's connection at the reply to lose.
func (c *lossyConn) replies() {
	in, out := bufio.NewReaderSize(c.upstream, 1<<16), bufio.NewWriterSize(c.client, 1<<16)
	var buf []byte
	for {
		kind, raw, err := readReply(in, buf[:0])
		if err != nil || !c.proxy.gate.wait(c.done) {
			_ = out.Flush()
			return
		}
		buf = raw
		request, paired := c.answer(kind, raw)
		if paired {
			c.proxy.executed(request)
		}
		if request.lose {
			_ = out.Flush()
			_ = c.client.Close()
		} else {
			// The rest of a pipeline counts even after its client has disconnected.
			_, _ = out.Write(raw)
		}
		if in.Buffered() == 0 {
			_ = out.Flush()
		}
		if c.drained() {
			return
		}
	}
}

func (c *lossyConn) drained() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clientGone && len(c.queue) == 0
}

// expect records a request whose reply is pending.
func (c *lossyConn) expect(args []string, lose bool) {
	request := pending{args: shortened(args), lose: lose}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(args) > 0 && isSubscription(strings.ToLower(args[0])) {
		request.subscribe = max(len(args)-1, 1)
		c.subscribing = true
	}
	c.queue = append(c.queue, request)
}

// answer finds the request that a reply belongs to. Messages and other pushes belong to none.
func (c *lossyConn) answer(kind byte, raw []byte) (request pending, paired bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind == '>' {
		c.pushes = true
	}
	if kind == '>' || (kind == '*' && c.subscribing && !c.pushes) {
		switch word := leadingWord(raw); {
		case isSubscription(word):
			return c.confirm()
		case kind == '>' || word == "message" || word == "pmessage" || word == "smessage":
			return pending{}, false
		}
	}
	if len(c.queue) == 0 {
		return pending{}, false
	}
	request, c.queue = c.queue[0], c.queue[1:]
	return request, true
}

// confirm counts one confirmed channel for the oldest pending subscription.
func (c *lossyConn) confirm() (pending, bool) {
	for i := range c.queue {
		request := &c.queue[i]
		if request.subscribe == 0 {
			continue
		}
		request.subscribe--
		if request.subscribe > 0 && !request.lose {
			return pending{}, false
		}
		answered := *request
		c.queue = append(c.queue[:i], c.queue[i+1:]...)
		return answered, true
	}
	// UNSUBSCRIBE without names is confirmed once for each channel, a number that is unknown here.
	return pending{}, false
}

func isSubscription(word string) bool {
	switch word {
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		return true
	}
	return false
}

// shortened returns the part of a request that the log keeps.
func shortened(args []string) []string {
	kept := make([]string, min(len(args), logArgs))
	for i := range kept {
		if arg := args[i]; len(arg) > logArgBytes {
			kept[i] = strings.Clone(arg[:logArgBytes])
		} else {
			kept[i] = arg
		}
	}
	return kept
}

// gate holds traffic while it is shut. The zero gate is open.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil while open, closed when it opens again
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case shut && g.shut == nil:
		g.shut = make(chan struct{})
	case !shut && g.shut != nil:
		close(g.shut)
		g.shut = nil
	}
}

// wait returns false when done ends first.
func (g *gate) wait(done <-chan struct{}) bool {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return true
	}
	select {
	case <-shut:
		return true
	case <-done:
		return false
	}
}
