package lua

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/send"
)

// maxShared is the largest number of bytes of keys and arguments with which a call shares a round trip. A larger call
// is sent by itself, because the others would wait for it.
const maxShared = 64 << 10

// trip is a call on its way. It names the client, because a pipeline must not keep it alive.
type trip struct {
	call    *Call
	client  Client
	sharing *sharing
}

// serverPipeline sends single calls to one server.
type serverPipeline = send.Pipeline[trip]

// sharing is how the calls on one client share round trips.
type sharing struct {
	many      bool // servers
	off       atomic.Bool
	byTag     atomic.Bool // the rows of one command must have one hash tag
	found     atomic.Bool // the nodes are known: a cluster client asks for them with its first call
	pipelines sync.Map    // *serverPipeline by the address of the server; by 0 for one server, or while none is known
}

// Direct makes every later call on the client go out alone, as a plain command does, and returns the client. Without
// it, concurrent calls share round trips on the clients that the package comment names. A call that is sent alone
// returns when go-redis does, which may be seconds after the end of its context.
func Direct(client Client) Client {
	plain := client
	if g, ok := client.(*guarded); ok {
		plain = g.Client
	}
	if s := sharingOf(plain); s != nil {
		s.off.Store(true)
	}
	return client
}

// pipeline returns the pipeline for the call, or nil if the call is sent by itself.
func (c *Call) pipeline(ctx context.Context, client Client) (*serverPipeline, *sharing) {
	s := sharingOf(client)
	if s == nil || s.off.Load() || c.whole() > maxShared {
		return nil, nil
	}
	var at any = 0
	if s.many && s.found.Load() {
		node, err := owner(ctx, client, c.firstKey())
		if err != nil || node == nil {
			return nil, nil // the call itself reports why
		}
		at = node.Options().Addr
	}
	if l, ok := s.pipelines.Load(at); ok {
		return l.(*serverPipeline), s
	}
	l, _ := s.pipelines.LoadOrStore(at, send.NewPipeline(sendTrips))
	return l.(*serverPipeline), s
}

// whole returns how many bytes the call has, with the command that goes out before it.
func (c *Call) whole() int {
	if c.ahead == nil {
		return c.size
	}
	return c.size + c.ahead.Size
}

// share sends the call in round trips that it shares with others, and sends it again if that is safe. It returns when
// ctx ends, whatever the server does.
func (c *Call) share(ctx context.Context, client Client, l *serverPipeline, s *sharing) {
	if ctx.Done() != nil {
		c.own()
	}
	var p pause
	for tries := 1; tries == 1 || p.pass(ctx, c.withoutDelay()); tries++ {
		c.begin() // here: a round trip that begins after the caller has left must not
		switch l.Do(ctx, trip{c, client, s}, c.whole()) {
		case send.Withdrawn:
			c.leave(ctx, ErrNotExecuted, "the server"+addrOf(client)+" has not replied to the calls before it")
			return
		case send.Left:
			c.leave(ctx, c.withdraw(), "")
			askAgain(ctx, client)
			return
		}
		if !c.record(ctx, client, c.cmd.Err(), tries) {
			return
		}
	}
}

// The phases of an attempt. A caller that leaves before its call is written withdraws it.
const (
	idle uint32 = iota
	written
	withdrawn
)

// withdraw keeps the call from being written and returns ErrNotExecuted. If the call was already written, withdraw
// keeps it from being written again and returns ErrOutcomeUnknown.
func (c *Call) withdraw() error {
	if c.phase.Swap(withdrawn) == idle {
		return ErrNotExecuted
	}
	return ErrOutcomeUnknown
}

// leave records that ctx ended before the attempt had a reply. The round trip may still use the call, so leave reads
// nothing of the attempt.
func (c *Call) leave(ctx context.Context, outcome error, detail string) {
	if outcome == ErrOutcomeUnknown {
		c.unknown = true
	} else if c.failure != nil {
		return // more specific than the end of the context
	}
	tries := 1
	if c.failure != nil {
		tries += c.failure.Tries
		detail = c.failure.before()
	}
	c.failure = &Error{
		Script: c.script.Name, Guarded: c.guarded, Outcome: outcome, Tries: tries, Detail: detail, Err: endOf(ctx),
	}
}

// own copies the memory that belongs to the caller: after ctx has ended, the caller may change it while the call is
// written.
func (c *Call) own() {
	if !c.borrowed {
		return
	}
	for i, a := range c.argv[3:] {
		switch v := a.(type) {
		case []byte:
			c.argv[3+i] = append([]byte(nil), v...)
		case *raw:
			if owned := append([]byte(nil), *v...); v == &c.binary {
				*v = owned
			} else {
				c.argv[3+i] = owned
			}
		case *string:
			if !c.holds(unsafe.Pointer(v)) {
				c.argv[3+i] = *v
			}
		case *int64:
			if !c.holds(unsafe.Pointer(v)) {
				c.argv[3+i] = *v
			}
		}
	}
}

// holds reports whether p points into the call itself.
func (c *Call) holds(p unsafe.Pointer) bool {
	offset := uintptr(p) - uintptr(unsafe.Pointer(c))
	return offset < unsafe.Sizeof(*c)
}

// sendTrips makes one attempt for each call. A pipeline of an AutoPipeliner does not wait for more calls, because these
// calls have already waited.
func sendTrips(ctx context.Context, trips []trip) {
	exits := true
	defer func() {
		for i := 0; exits && i < len(trips); i++ {
			trips[i].call.cmd.SetErr(errExited) // a call that has its reply is done
		}
	}()
	makeTrips(ctx, trips)
	exits = false
}

// errExited is the error of an attempt that a hook of the client ended.
var errExited = errors.New("a hook of the client ended the goroutine of the call (runtime.Goexit)")

func makeTrips(ctx context.Context, trips []trip) {
	client, s := trips[0].client, trips[0].sharing
	if _, piped := client.(*redis.AutoPipeliner); len(trips) == 1 && !piped {
		if c := trips[0].call; c.wanted() {
			c.attempt(ctx, client)
			s.find(c)
		}
		return
	}
	r := round{client: client, byTag: s.byTag.Load()}
	calls := make([]*Call, 0, len(trips))
	for _, t := range trips {
		if t.call.wanted() {
			calls = append(calls, t.call)
		}
	}
	r.send(ctx, calls)
	s.find(calls...)
	if r.crossSlot {
		s.byTag.Store(true) // one node of a cluster, or a proxy before one
	}
}

// find records that the nodes are known, because a call was sent to one.
func (s *sharing) find(calls ...*Call) {
	if !s.found.Load() && slices.ContainsFunc(calls, func(c *Call) bool { return c.cmd.program.sent }) {
		s.found.Store(true)
	}
}

// begin prepares the call for an attempt. The caller of the call runs it before each attempt.
func (c *Call) begin() {
	c.phase.Store(idle)
	c.cmd = command{program: program{script: c.script, call: c, guarded: c.guarded}}
	c.cmd.SetErr(errUnsent)
}

// wanted reports whether the caller still waits for the attempt.
func (c *Call) wanted() bool { return c.phase.Load() == idle }

// errUnsent is the error of an attempt that is not made because the call before it has reached a replica.
var errUnsent = errors.New("not sent: the call before it failed")

// clients are the clients that calls were made on, by their address in memory. The map is replaced and never changed,
// so that a call reads it without a lock. An entry is removed when its client is collected.
var (
	clients   atomic.Pointer[map[uintptr]sharer]
	clientsMu sync.Mutex
)

// sharer is the entry of one client. When the client is gone, another client may have its address.
type sharer struct {
	is func(unsafe.Pointer) bool
	*sharing
}

// sharingOf returns nil for a client whose servers are not known.
func sharingOf(client Client) *sharing {
	switch c := client.(type) {
	case *redis.Client:
		return lookUp(c)
	case *redis.AutoPipeliner:
		return lookUp(c)
	case *redis.ClusterClient:
		return lookUp(c)
	case *redis.Ring:
		return lookUp(c)
	}
	return nil
}

func newSharing(client Client) *sharing {
	_, cluster := client.(*redis.ClusterClient)
	_, piped := client.(*redis.AutoPipeliner)
	s := &sharing{many: !send.OneServer(client)}
	s.byTag.Store(s.many)
	s.found.Store(!cluster)
	s.off.Store(s.many && piped) // no node is known for a key
	return s
}

func lookUp[T any](client *T) *sharing {
	p := unsafe.Pointer(client)
	if p == nil {
		return nil
	}
	if m := clients.Load(); m != nil {
		if s, ok := (*m)[uintptr(p)]; ok && s.is(p) {
			return s.sharing
		}
	}
	return enter(client)
}

func enter[T any](client *T) *sharing {
	clientsMu.Lock()
	defer clientsMu.Unlock()
	p, old := unsafe.Pointer(client), clients.Load()
	next := make(map[uintptr]sharer)
	if old != nil {
		if s, ok := (*old)[uintptr(p)]; ok && s.is(p) {
			return s.sharing
		}
		for at, s := range *old {
			next[at] = s
		}
	}
	w, s := weak.Make(client), newSharing(any(client).(Client))
	next[uintptr(p)] = sharer{is: func(q unsafe.Pointer) bool { return unsafe.Pointer(w.Value()) == q }, sharing: s}
	clients.Store(&next)
	runtime.AddCleanup(client, remove, gone{uintptr(p), s})
	return s
}

// gone names an entry whose client no longer exists.
type gone struct {
	at uintptr
	*sharing
}

func remove(g gone) {
	clientsMu.Lock()
	defer clientsMu.Unlock()
	old := *clients.Load()
	if old[g.at].sharing != g.sharing {
		return
	}
	next := make(map[uintptr]sharer)
	for at, s := range old {
		if at != g.at {
			next[at] = s
		}
	}
	clients.Store(&next)
}
