package lock

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/lua"
)

// lockHub is what the Lockers of a process share: who waits, who is kept, and the
// connection on which both are told. Messages are one line each:
//
//	g owner fence start length   the lock is yours, from start (µs) for length (ms)
//	f owner                      check again: the limit is another, or it was given back
//	n owner length               you are next; look when length (ms) has passed
//	r token key                  your lock was taken away; a permit's has no key
//	e                            another leads; for those who observe, on a channel of
//	                             their own
type lockHub struct {
	client  lua.Client
	process string
	inbox   string // channel of this process
	tokens  atomic.Int64
	ears    *notify.Hub
	keeping sync.WaitGroup
	closed  chan struct{}
	close   sync.Once

	mu      sync.Mutex // guards all below
	waiters map[string]*lockWaiter
	lines   map[string]*lockLine
	home    bool // the inbox was joined
	held    map[heldKey]*Lease
	keeper  keeper

	observers map[*observer]struct{}
}

// heldKey tells leases apart: those of AcquireAll have one token.
type heldKey struct{ token, key string }

func (l *Lease) heldKey() heldKey { return heldKey{l.token, l.key} }

func newLockHub(client lua.Client) *lockHub {
	h := &lockHub{
		client: client, process: newProcess(), ears: notify.NewHub(client), closed: make(chan struct{}),
		waiters: make(map[string]*lockWaiter), lines: make(map[string]*lockLine), held: make(map[heldKey]*Lease),
	}
	h.ears.Heard, h.ears.Up = h.heard, h.up
	return h
}

// ErrLockerClosed is what a waiting Acquire returns when its Locker is closed.
var ErrClosed = errors.New("luatomic: locker closed")

// Close ends the connection on which the Locker listens. Those who wait get
// ErrLockerClosed, and leases are kept no longer; it releases none and does not
// close the client. A Locker that never waited nor kept a lease need not be closed.
func (h *lockHub) Close() error {
	h.close.Do(func() { close(h.closed) })
	h.ears.Close()
	h.stopKeeping()
	return nil
}

func (h *lockHub) newToken() string {
	return h.process + "." + strconv.FormatInt(h.tokens.Add(1), 36)
}

// lockLine is those of this process who wait for one lock. Its guard is the one
// timer that covers holders that die.
type lockLine struct {
	key     string
	channel string
	first   []*lockWaiter // in order of arrival
	guard   *time.Timer
	armed   bool      // the guard will fire; else one of the line has yet to look
	due     time.Time // when it will
	told    time.Time // when a message set it
}

// lockWaiter is one who waits.
type lockWaiter struct {
	lease  *Lease
	line   *lockLine
	wake   chan struct{} // one look is enough, however often it is told
	grants chan grant
	queued bool // it was in the queue, and was not told to come again; guarded by the hub's lock
	told   bool // the last message was a grant

	// The server's clock, as the last reply said, when that was asked, and a fence
	// that every later grant exceeds.
	asked  time.Time
	server int64 // µs
	fence  int64
}

// grant is what the server says when it hands over a lock.
type grant struct {
	fence  int64
	start  int64 // µs of the server's clock
	length time.Duration
	heard  time.Time
}

// deadline is the end of a granted lease by this process' clock: no later than the
// server's. The grant is as old as the server's clock says; where that was set back,
// as old as the message.
func (w *lockWaiter) deadline(g grant) time.Time {
	since := time.Duration(g.start-w.server) * time.Microsecond
	byClock := w.asked.Add(since + g.length - drift(since+g.length))
	if byMessage := g.heard.Add(g.length); byMessage.Before(byClock) {
		return byMessage
	}
	return byClock
}

// queueUp makes a waiter for the lease.
func (h *lockHub) queueUp(l *Lease, channel string) *lockWaiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	line := h.lines[l.key]
	if line == nil {
		line = &lockLine{key: l.key, channel: channel}
		h.lines[l.key] = line
	}
	w := &lockWaiter{lease: l, line: line, wake: make(chan struct{}, 1), grants: make(chan grant, 1)}
	line.first = append(line.first, w)
	h.waiters[l.token] = w
	return w
}

// leaveLine forgets the waiter.
func (h *lockHub) leaveLine(w *lockWaiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiters, w.lease.token)
	line := w.line
	for i := range line.first {
		if line.first[i] == w {
			line.first = append(line.first[:i], line.first[i+1:]...)
			break
		}
	}
	if len(line.first) > 0 {
		if !line.armed { // w was to look, or it had the lock by a look
			line.first[0].rouse()
		}
		return
	}
	if line.guard != nil {
		line.guard.Stop()
	}
	if h.lines[line.key] == line {
		delete(h.lines, line.key)
	}
}

// watch lets the first in line look when d is over, as the answer to a call says that
// was sent at asked. The newest word counts: a message that came after that may be
// newer than the answer, which then puts no look off.
func (h *lockHub) watch(line *lockLine, asked time.Time, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if line.told.After(asked) && (!line.armed || line.due.Before(time.Now().Add(d))) {
		return
	}
	h.watchLocked(line, d)
}

// toldLocked lets the first in line look when d is over, as a message says.
func (h *lockHub) toldLocked(line *lockLine, d time.Duration) {
	line.told = time.Now()
	h.watchLocked(line, d)
}

// longestWatch bounds the time between two looks, so that the queue in Redis, which
// expires after two minutes, lives as long as somebody waits.
const longestWatch = 30 * time.Second

func (h *lockHub) watchLocked(line *lockLine, d time.Duration) {
	if len(line.first) == 0 {
		return
	}
	d = min(max(d, time.Millisecond), longestWatch)
	if line.guard == nil {
		line.guard = time.AfterFunc(d, func() { h.look(line) })
	} else {
		line.guard.Reset(d)
	}
	line.armed, line.due = true, time.Now().Add(d)
}

func (h *lockHub) look(line *lockLine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	line.armed = false
	if len(line.first) > 0 {
		line.first[0].rouse()
	}
}

// standing notes that the waiter is in the queue. If it has joined although it was
// there, the queue was lost, or the server does not count who listens in this process,
// as the slot has moved or the connection leads to what is a replica now. Then it
// listens anew, and all of the line look.
func (h *lockHub) standing(w *lockWaiter, joined bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := joined && w.queued
	w.queued = true
	if !lost {
		return
	}
	if !h.ears.Tagged() { // else Follow did
		go h.ears.Renew(w.line.channel) // it may have to wait for a call
	}
	for _, other := range w.line.first {
		if other != w {
			other.rouse()
		}
	}
}

func (w *lockWaiter) rouse() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// up is called when a channel is heard again: what was said meanwhile is lost.
func (h *lockHub) up(channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, line := range h.lines {
		if line.channel == channel {
			for _, w := range line.first {
				w.rouse()
			}
		}
	}
	h.tellObserversLocked(channel)
	if channel == h.inbox {
		h.keeper.hurry()
	}
}

// heard takes one message. One that nobody waits for any more is dropped: whoever
// left the queue gives back what it was granted.
func (h *lockHub) heard(channel, message string) {
	kind, rest, _ := strings.Cut(message, " ")
	owner, rest, _ := strings.Cut(rest, " ")
	now := time.Now()
	h.mu.Lock()
	if kind == "r" {
		taken := h.takenLocked(owner, rest)
		h.mu.Unlock()
		for _, lease := range taken {
			lease.end(ErrRevoked)
		}
		return
	}
	defer h.mu.Unlock()
	if kind == "e" {
		h.tellObserversLocked(channel)
		return
	}
	w := h.waiters[owner]
	if w == nil {
		return
	}
	switch kind {
	case "g":
		h.granted(w, rest, now)
	case "f":
		w.queued = false
		w.rouse()
	case "n":
		if ms, err := strconv.ParseInt(rest, 10, 64); err == nil {
			h.toldLocked(w.line, time.Duration(ms)*time.Millisecond)
		}
	}
}

func (h *lockHub) granted(w *lockWaiter, rest string, now time.Time) {
	var n [3]int64
	for i := range n {
		var field string
		var err error
		field, rest, _ = strings.Cut(rest, " ")
		if n[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return
		}
	}
	g := grant{fence: n[0], start: n[1], length: time.Duration(n[2]) * time.Millisecond, heard: now}
	select {
	case w.grants <- g:
	default: // told twice
	}
	if len(w.line.first) > 1 {
		h.toldLocked(w.line, g.length) // the others of this process look after it
	}
}

// takenLocked are the leases with the token, at the key if that is known.
func (h *lockHub) takenLocked(token, key string) []*Lease {
	var taken []*Lease
	for k, lease := range h.held {
		if k.token == token && (key == "" || k.key == key) {
			taken = append(taken, lease)
		}
	}
	return taken
}

// listenHome joins the channel of this process, in the background: a lease that is
// kept wants to know if it is taken away, and does not wait for that.
func (h *lockHub) listenHome() {
	h.mu.Lock()
	first := !h.home
	h.home = true
	h.mu.Unlock()
	if first {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), homeTimeout)
			defer cancel()
			// Where it fails the next renewal notices the loss.
			_ = h.ears.Join(ctx, h.inbox)
		}()
	}
}

const homeTimeout = 10 * time.Second
