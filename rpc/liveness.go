package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// liveness keeps this node reachable. Heartbeats renew its lease, and the echo of each heartbeat shows that the
// subscription works.
type liveness struct {
	running      atomic.Bool   // Run is running
	heartbeat    chan struct{} // asks for a heartbeat out of turn
	announcing   chan struct{} // full while a heartbeat or a leave is under way
	echo         chan struct{} // filled by the echo that drain waits for
	echoed       atomic.Int64  // when the last echo came or was first due, UnixNano; 0: none is due
	resetBackoff atomic.Int64  // how long a new link may go without a receiver before it is replaced, ns
	resubscribed atomic.Int64  // how often this or another node subscribed anew
	rejoined     atomic.Int64  // when this one last did, UnixNano; 0: not in this Run

	clock serverClock

	// Guarded by announcing.
	beats   int       // how many heartbeats were sent
	doubted time.Time // when the server's methods of this node were last in doubt: a request for them may still arrive

	mu       sync.Mutex
	ended    bool          // the last Run has, and there is no next one yet
	failed   error         // of the last attempt to connect or to announce; nil after one that succeeded
	reported time.Time     // when the outage of the link was reported; zero: there is none
	given    int           // the version of the methods that the server has; -1: the node is not announced
	changed  chan struct{} // closed when that changes
}

func (l *liveness) init() {
	l.heartbeat, l.announcing = make(chan struct{}, 1), make(chan struct{}, 1)
	l.echo = make(chan struct{}, 1)
	l.clock.init()
	l.given, l.changed = -1, make(chan struct{})
}

// end forgets the state of a Run: the node is not announced until the next Run announces it.
func (l *liveness) end() {
	l.setEnded(true)
	l.echoed.Store(0)
	l.rejoined.Store(0)
	l.resetBackoff.Store(0)
}

func (l *liveness) setEnded(ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = ended
	l.given = -1
	l.failed, l.reported = nil, time.Time{}
}

func (l *liveness) hasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// failure returns why the node is not connected, or nil if that is not known.
func (l *liveness) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// fail records how an attempt to announce the node has ended.
func (l *liveness) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = err
}

// reportAgain is how long an outage of the link lasts until it is reported again. The link tries to end it ten times a
// second.
const reportAgain = 10 * time.Second

// linkDown records why the link is down, and reports whether OnError should get the error. The error of an attempt may
// come after a later attempt has succeeded: then the link is up, and nothing is recorded.
func (l *liveness) linkDown(err error, isUp func() bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if isUp() {
		return false
	}
	l.failed = err
	if !l.reported.IsZero() && time.Since(l.reported) < reportAgain {
		return false
	}
	l.reported = time.Now()
	return true
}

// linkUp records that the outage is over.
func (l *liveness) linkUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed, l.reported = nil, time.Time{}
}

// give records which version of the methods the server has.
func (l *liveness) give(version int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if version != l.given && !l.ended {
		l.given = version
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// has returns which version of the methods the server has, and a channel that is closed when that changes.
func (l *liveness) has() (version int, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.given, l.changed
}

// await waits until the node is subscribed and the server has that version of its methods, or a later one.
func (l *liveness) await(ctx context.Context, version int, expired <-chan time.Time) error {
	for {
		given, changed := l.has()
		if given >= version {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return endOf(ctx)
		case <-expired:
			return context.DeadlineExceeded
		}
	}
}

// lock excludes heartbeats and what must not run at the same time. It fails when ctx ends.
func (l *liveness) lock(ctx context.Context) bool {
	select {
	case l.announcing <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *liveness) unlock() { <-l.announcing }

// doubt records whether a request for the methods of this node may have another copy, or may have been lost.
func (l *liveness) doubt(doubtful bool) {
	if doubtful {
		l.doubted = time.Now()
	}
}

// doubts reports whether a late copy of such a request may have changed what the server knows.
func (l *liveness) doubts() bool { return time.Since(l.doubted) < doubtFor }

func (l *liveness) hasEchoed(drained bool) {
	l.echoed.Store(time.Now().UnixNano())
	if drained {
		offer(l.echo)
	}
}

// sendHeartbeats keeps the node's lease. It starts only once the node can be reached.
func (b *Bus) sendHeartbeats(ctx context.Context, up <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-up:
	}
	tick, checked := time.NewTicker(b.opts.Lease/3), time.Now()
	defer tick.Stop()
	for {
		select {
		case <-b.liveness.heartbeat: // what it was asked for is in this one
		default:
		}
		err := b.announce(ctx)
		b.liveness.fail(err)
		if b.link.isUp() { // else it is the outage that the link reports
			b.report(ctx, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// If the heartbeat took long or the process stood still, no echo was due. The next check decides.
			if time.Since(checked) < b.opts.Lease/2 {
				b.replaceSilentLink()
			}
			checked = time.Now()
			offer(b.pending.check)
			offer(b.outbox.filled)
			b.renewBindings(ctx)
		case <-b.liveness.heartbeat:
		case <-up:
		}
	}
}

// linkUp is called when the node can be reached again. It makes both sides check what they missed. The first time
// nothing can have been missed.
func (b *Bus) linkUp(up chan<- struct{}) {
	b.liveness.linkUp()
	offer(up)
	if given, _ := b.liveness.has(); given < 0 {
		return
	}
	b.liveness.resubscribed.Add(1)
	b.bindings.distrust() // the notice that another node has taken one may be lost
	b.liveness.echoed.Store(time.Now().UnixNano())
	b.liveness.rejoined.Store(time.Now().UnixNano())
	if b.serving.any() { // nobody has sent a request to a process that only calls
		b.outbox.add(b.keys.All, wire.Subscribed, b.Node())
	}
	offer(b.pending.check)
}

// replaceSilentLink replaces a link on which no echo came for a lease: nothing reaches the node there. Heartbeats and
// this check come in each third of a lease, and the last echo may still be on its way.
func (b *Bus) replaceSilentLink() {
	echoed := b.liveness.echoed.Load()
	if echoed != 0 && time.Since(time.Unix(0, echoed)) > b.opts.Lease*5/6 {
		b.liveness.echoed.Store(time.Now().UnixNano())
		b.link.replace()
	}
}

const (
	// keysStay is how long the keys of methods and descriptions stay at least without a node that renews them.
	keysStay = time.Minute
	// renewEvery is how many heartbeats of a node are between two that renew these keys.
	renewEvery = 5
)

// announce sends one heartbeat: it renews the lease and publishes an echo. It sends the methods of the node when they
// have changed, when the server does not know the node, and from time to time. While a copy of an earlier request may
// arrive, each heartbeat sends the methods, and withdraws again those that were withdrawn.
func (b *Bus) announce(ctx context.Context) error {
	return b.announceUnless(ctx, func() bool { return false })
}

// readClock reads the server's clock by a heartbeat, unless a heartbeat has read it after since. So all calls that were
// late for the same reason share one heartbeat.
func (b *Bus) readClock(ctx context.Context, since time.Time) error {
	return b.announceUnless(ctx, func() bool { return b.liveness.clock.readSince(since) })
}

// announceUnless sends a heartbeat, unless needless says, when its turn comes, that it is no longer needed.
func (b *Bus) announceUnless(ctx context.Context, needless func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Lease)
	defer cancel()
	l := &b.liveness
	if !l.lock(ctx) {
		return endOf(ctx)
	}
	defer l.unlock()
	if needless() {
		return nil
	}
	if l.hasEnded() { // a call that was under way asks for it
		return b.notReady(errEnded)
	}
	names, version := b.serving.announced()
	given, _ := l.has()
	give := version != given || l.beats%renewEvery == 0 || l.doubts()
	l.beats++
	for {
		fresh, err := b.join(ctx, names, give)
		if err != nil {
			return fmt.Errorf("luatomic: announce on bus %q: %w", b.name, err)
		}
		if give && !b.serving.isLeaving() {
			l.give(version)
		}
		if give || !fresh || len(names) == 0 {
			return b.withdrawAgain(ctx)
		}
		give = true
	}
}

// join runs the script of a heartbeat, once for each 500 methods that are given.
func (b *Bus) join(ctx context.Context, names []string, give bool) (fresh bool, err error) {
	params := rpcscript.JoinParams{
		Nodes: b.keys.Nodes, About: b.keys.About, Methods: b.keys.Methods, Serves: b.keys.Serves, Node: b.Node(),
		Lease: b.opts.Lease, Load: int64(b.load()), Text: b.describe(), Outbox: b.keys.Outbox,
		Notice: b.notice(wire.Echo), Shard: b.shard,
	}
	if give {
		params.Stay = max(keysStay, 2*renewEvery*b.opts.Lease)
	} else {
		names = nil
	}
	for {
		n := min(len(names), maxKeys)
		params.Names = names[:n]
		sent, again := time.Now(), send.Resent(false)
		r, err := rpcscript.Join(send.WatchResent(ctx, &again), b.client, params)
		b.liveness.doubt(give && (err != nil || bool(again)))
		if r.Lapsed || bool(again) || err != nil && !errors.Is(err, lua.ErrNotExecuted) { // that may hide it
			b.bindings.distrust()
		}
		b.noteReceivers(r.Receivers, err)
		if err != nil {
			return false, err
		}
		b.liveness.clock.note(r.Now, sent, time.Now())
		fresh = fresh || r.Fresh
		params.Part++
		if names = names[n:]; len(names) == 0 {
			return fresh, nil
		}
	}
}

// noteReceivers handles the number of subscribers that the server counted for an echo. A server that refuses the
// heartbeat publishes no echo, so no echo is missed.
func (b *Bus) noteReceivers(receivers int64, err error) {
	l := &b.liveness
	var refused *lua.Error
	switch {
	case errors.As(err, &refused) && refused.Code != "":
		if l.echoed.Load() != 0 {
			l.echoed.Store(time.Now().UnixNano())
		}
	case receivers > 0:
		b.link.counted(true)
		l.resetBackoff.Store(0)
		l.echoed.CompareAndSwap(0, time.Now().UnixNano()) // from now on echoes must come
	case err == nil:
		b.link.counted(false)
		b.replaceUnreachableLink()
	}
}

// replaceUnreachableLink replaces a link whose echo had no receiver. The link leads to a server that is a replica now,
// where the node receives its own echo and no calls, or to a server that the keys of the bus are leaving. The time for
// which a new link may be without a receiver doubles each time. The connection, which others share, is replaced once a
// second at most.
func (b *Bus) replaceUnreachableLink() {
	confirmed, backoff := b.link.age(), time.Duration(b.liveness.resetBackoff.Load())
	switch {
	case confirmed == 0: // it is down; a heartbeat follows when it is up
	case confirmed < backoff:
		time.AfterFunc(backoff-confirmed, func() { offer(b.liveness.heartbeat) })
	default:
		b.liveness.resetBackoff.Store(int64(min(max(2*backoff, 5*time.Millisecond), b.opts.Lease/3)))
		if !b.link.replace() {
			time.AfterFunc(time.Second, func() { offer(b.liveness.heartbeat) })
		}
	}
}

// leave withdraws the node from its methods, although ctx has ended. With stay the node remains alive and finishes what
// it has begun. leave reports success. If it fails, the lease ends by time. It waits for a slow or silent server as
// long as the grace: a node that cannot withdraw loses the calls that are on their way to it.
func (b *Bus) leave(ctx context.Context, stay bool) bool {
	within := max(b.opts.Grace, time.Second)
	leaving, cancel := outlasting(ctx, within)
	defer cancel()
	b.serving.setState(true, !stay)
	locked, end := context.WithTimeout(leaving, within/2) // the rest is for the script
	defer end()
	if b.liveness.lock(locked) { // a heartbeat under way would bring the methods back
		defer b.liveness.unlock()
	}
	_, err := rpcscript.Leave(leaving, b.client, rpcscript.LeaveParams{
		Nodes: b.keys.Nodes, About: b.keys.About, Methods: b.keys.Methods, Serves: b.keys.Serves,
		Node: b.Node(), Stay: stay,
	})
	if err != nil {
		b.report(context.WithoutCancel(ctx), fmt.Errorf("luatomic: leave bus %q: %w", b.name, err))
		return false
	}
	if !stay {
		b.removeFinished(leaving)
		b.publish(leaving, b.keys.All, wire.Left, b.Node())
	}
	return true
}

// maxKeys is how many keys one script takes, and how many texts one notice.
const maxKeys = 500
