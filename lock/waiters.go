package lock

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/luatomic/luatomic/internal/keeper"
	"github.com/luatomic/luatomic/internal/notify"
)

// waiters has the waiters of a process, in one group for each lock.
type waiters struct {
	subscriptions *notify.Hub
	clock         serverClock // of the one server, where there is one

	mu      sync.Mutex // guards all below, and the fields of groups
	byToken map[string]*waiter
	groups  map[string]*group
}

// group is the waiters of this process for one lock. One timer for all of them covers holders that die.
type group struct {
	key      string
	channel  string
	clock    *serverClock // of the server that has the lock
	members  []*waiter    // in order of arrival
	timer    *time.Timer
	armed    bool      // the timer will fire; else one member is about to make an attempt
	due      time.Time // when it will fire
	notified time.Time // when a message set it
	doubtful []*waiter // are to make an attempt, since a message may have been missed
	checking int       // how many members do so
	holder   string    // the note of the holder, as far as a reply or a message said
	until    time.Time // the end of its lease, likewise
	unnamed  bool      // a message said that there is another holder, and not which
}

// waiter is one Acquire that waits in the queue.
type waiter struct {
	request *request
	group   *group
	wake    chan struct{} // has it make another attempt
	grants  chan grantMessage
	inQueue bool  // the server has its entry and has not taken it out; guarded by the lock of waiters
	granted int64 // the fence of the last message where that was a grant, else 0

	checking bool // it is one of those that the group counts; guarded by the lock of waiters

	asked time.Time // when the last attempt was sent
	fence int64     // every later grant exceeds it
}

// grantMessage is the notification of a hand-over.
type grantMessage struct {
	fence    int64
	start    int64 // us of the server's clock
	length   time.Duration
	received time.Time
}

// deadline is the end of a granted lease by this process' clocks, no later than its end at the server. The server's
// clock says how old the grant is. If that clock was set back, the grant is at least as old as the message. A message
// that a process reads after its machine was suspended is older than it seems; the wall clock of the reading shows
// that.
func (m grantMessage) deadline(server serverReading) time.Time {
	since := time.Duration(m.start-server.us) * time.Microsecond
	byClock, byMessage := keeper.End(server.asked, since+m.length), m.received.Add(m.length)
	if keeper.Left(byMessage) < keeper.Left(byClock) {
		return byMessage
	}
	return byClock
}

// signal tells the waiter to make another attempt. Several signals before the attempt have the effect of one.
func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func newWaiters(s *notify.Hub) *waiters {
	return &waiters{subscriptions: s, byToken: make(map[string]*waiter), groups: make(map[string]*group)}
}

// add makes a waiter for the request.
func (ws *waiters) add(r *request, channel string) *waiter {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	g := ws.groups[r.keys.Record]
	if g == nil {
		g = &group{key: r.keys.Record, channel: channel, clock: &ws.clock}
		if ws.subscriptions.Tagged() { // another lock may be at another server
			g.clock = &serverClock{}
		}
		ws.groups[g.key] = g
	}
	w := &waiter{request: r, group: g, wake: make(chan struct{}, 1), grants: make(chan grantMessage, 1)}
	g.members = append(g.members, w)
	ws.byToken[r.token] = w
	return w
}

// remove forgets the waiter.
func (ws *waiters) remove(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.byToken, w.request.token)
	g := w.group
	for i := range g.members {
		if g.members[i] == w {
			g.members = append(g.members[:i], g.members[i+1:]...)
			break
		}
	}
	g.doubtful = slices.DeleteFunc(g.doubtful, func(other *waiter) bool { return other == w })
	ws.checked(w)
	if len(g.members) > 0 {
		if !g.armed { // the attempt was w's, or w acquired the lock by one
			g.members[0].signal()
		}
		return
	}
	if g.timer != nil {
		g.timer.Stop()
	}
	if ws.groups[g.key] == g {
		delete(ws.groups, g.key)
	}
}

// recheckAfter lets the first member of w's group make an attempt after d, counted from now: the reply to the call that
// was sent at w.asked says that the holder has the lock for d. A message that came after w.asked may be newer than the
// reply. Then the reply postpones nothing.
func (ws *waiters) recheckAfter(w *waiter, d time.Duration, holder string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	g := w.group
	if g.notified.After(w.asked) && (!g.armed || g.due.Before(time.Now().Add(d))) {
		return
	}
	ws.heldFor(g, d, holder)
}

// heldFor records who holds the lock and for how long from now, and sets the timer to that time. The caller holds
// ws.mu.
func (ws *waiters) heldFor(g *group, d time.Duration, holder string) {
	g.holder, g.until, g.unnamed = holder, time.Now().Add(d), false
	ws.arm(g, d)
}

// holder returns what the group of w knows about the holder: its note and what is left of its lease.
func (ws *waiters) holder(w *waiter) (note string, remaining time.Duration) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return w.group.holder, max(time.Until(w.group.until), 0)
}

// informed reports whether the group of w has set its timer and knows the holder.
func (ws *waiters) informed(w *waiter) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return w.group.armed && !w.group.unnamed
}

// recheckSoon tells w to make an attempt if its group has no timer: the reply did not say how long the lease lasts.
func (ws *waiters) recheckSoon(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if !w.group.armed {
		w.signal()
	}
}

// maxRecheck bounds the time between two attempts, so that the queue in Redis, which expires after two minutes, lives
// as long as a process waits.
const maxRecheck = 30 * time.Second

// arm sets the timer of the group. The caller holds ws.mu.
func (ws *waiters) arm(g *group, d time.Duration) {
	if len(g.members) == 0 {
		return
	}
	d = min(max(d, time.Millisecond), maxRecheck)
	if !ws.subscriptions.Subscribed(g.channel) {
		d = min(d, g.members[0].request.opts.pollDelay())
	}
	if g.timer == nil {
		g.timer = time.AfterFunc(d, func() { ws.recheck(g) })
	} else {
		g.timer.Reset(d)
	}
	g.armed, g.due = true, time.Now().Add(d)
}

// lost lets the first member of each group on the channel poll until the subscription is confirmed again. Until then no
// message comes, and the server may refuse the subscription.
func (ws *waiters) lost(channel string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, g := range ws.groups {
		if g.channel == channel && g.armed {
			ws.arm(g, time.Until(g.due))
		}
	}
}

// armByMessage sets the timer of the group to what a message says. The caller holds ws.mu.
func (ws *waiters) armByMessage(g *group, d time.Duration, holder string) {
	g.notified = time.Now()
	ws.heldFor(g, d, holder)
}

// recheck tells the first member of the group to make an attempt.
func (ws *waiters) recheck(g *group) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	g.armed = false
	if len(g.members) > 0 {
		g.members[0].signal()
	}
}

// queued records that the waiter is in the queue. If it has joined although it was in the queue before, the queue was
// lost, or the server does not count this process as subscribed: the slot has moved, or the connection now leads to a
// replica. Then the process subscribes again, and all others of the group make an attempt.
func (ws *waiters) queued(w *waiter, joined bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	defer ws.checked(w)
	lost := joined && w.inQueue && ws.subscriptions.Subscribed(w.group.channel) // else it polls
	w.inQueue = true
	if !lost {
		return
	}
	if !ws.subscriptions.Tagged() { // else Follow did so
		go ws.subscriptions.Reconnect(w.group.channel) // it may have to wait for a call
	}
	ws.doubt(w.group, w)
}

// signalAll tells every waiter on the channel to make an attempt, because a message may have been missed.
func (ws *waiters) signalAll(channel string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, g := range ws.groups {
		if g.channel == channel {
			ws.doubt(g, nil)
		}
	}
}

// doubt lets all members of a group but one make an attempt. It is no longer known whether the server has their
// entries, so a missing entry is no news then. The caller holds ws.mu.
func (ws *waiters) doubt(g *group, but *waiter) {
	g.doubtful = nil
	for _, w := range g.members {
		if w != but {
			w.inQueue = false
			g.doubtful = append(g.doubtful, w)
		}
	}
	ws.check(g)
}

// maxChecks is how many members of a group make an attempt at the same time after a doubt. For each attempt the server
// searches the queue, which has an entry of each member.
const maxChecks = 16

// check lets the next doubtful members make an attempt, in order of arrival. The caller holds ws.mu.
func (ws *waiters) check(g *group) {
	for len(g.doubtful) > 0 && g.checking < maxChecks {
		w := g.doubtful[0]
		g.doubtful = g.doubtful[1:]
		if !w.checking {
			w.checking = true
			g.checking++
		}
		w.signal()
	}
}

// checked records that the attempt of the waiter is over. The caller holds ws.mu.
func (ws *waiters) checked(w *waiter) {
	if w.checking {
		w.checking = false
		w.group.checking--
		ws.check(w.group)
	}
}

// received passes a message of that type to the waiter with the token, and reports whether there is one.
func (ws *waiters) received(messageType, token, args string) bool {
	now := time.Now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.byToken[token]
	if w == nil {
		return false
	}
	switch messageType {
	case "g":
		ws.granted(w, args, now)
	case "f":
		w.inQueue = false
		w.signal()
	case "n":
		if ms, err := strconv.ParseInt(args, 10, 64); err == nil {
			ws.armByMessage(w.group, time.Duration(ms)*time.Millisecond, "")
			w.group.unnamed = true
		}
	}
	return true
}

// granted passes the message of a grant to the waiter. The caller holds ws.mu.
func (ws *waiters) granted(w *waiter, args string, now time.Time) {
	var n [3]int64
	for i := range n {
		var field string
		var err error
		field, args, _ = strings.Cut(args, " ")
		if n[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return
		}
	}
	m := grantMessage{fence: n[0], start: n[1], length: time.Duration(n[2]) * time.Millisecond, received: now}
	select {
	case w.grants <- m:
	default: // a repeat
	}
	if len(w.group.members) > 1 {
		ws.armByMessage(w.group, m.length, w.request.opts.Note) // the next member makes an attempt when this lease ends
	}
}
