package rpc

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/lua"
)

// Errors of calls. See Method.Call for when each of them comes.
var (
	// ErrNoResponders says that no node could be given the call. It comes as a
	// *NoRespondersError, after one round trip.
	ErrNoResponders = errors.New("luatomic: no responder")
	// ErrNodeLost says that the node which had the call is gone. The handler may have
	// run, in part or whole; its reply is refused.
	ErrNodeLost = errors.New("luatomic: the node is lost")
	// ErrOverloaded says that all handlers of all nodes are busy. The handler has not
	// run. It comes as a *RemoteError with CodeOverloaded.
	ErrOverloaded = errors.New("luatomic: all handlers are busy")
	// ErrConnectionTaken says that another live node owns the connection.
	ErrConnectionTaken = errors.New("luatomic: the connection belongs to another node")
)

// NoRespondersError says why nobody could be given a call. It matches
// ErrNoResponders.
type NoRespondersError struct {
	Method string
	// Reason is "no node serves it"; "no lease" when the nodes that served it are
	// gone; "no subscriber" when they are announced but not connected; "no
	// connection" when nobody owns the connection that was named.
	Reason string
}

func (e *NoRespondersError) Error() string {
	return fmt.Sprintf("%v for %q: %s", ErrNoResponders, e.Method, e.Reason)
}

// Is matches ErrNoResponders.
func (e *NoRespondersError) Is(target error) bool { return target == ErrNoResponders }

// Codes of a RemoteError that the library itself sends.
const (
	CodeError      = "error"       // the handler returned an error without a code
	CodeInternal   = "internal"    // the handler panicked
	CodeBadRequest = "bad_request" // the body is not what the method takes
	CodeNoMethod   = "no_method"   // the node stopped serving the method
	CodeOverloaded = "overloaded"  // all handlers are busy
	CodeTooLarge   = "too_large"   // the result is larger than a reply may be
)

// RemoteError is the answer of a handler that failed. A handler may return one to
// choose the code.
type RemoteError struct {
	Code, Message string
}

func (e *RemoteError) Error() string { return "luatomic: remote: " + e.Code + ": " + e.Message }

// Is matches ErrOverloaded for that code.
func (e *RemoteError) Is(target error) bool {
	return target == ErrOverloaded && e.Code == CodeOverloaded
}

// Codec turns requests and results into bytes. It must be safe for concurrent use.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// BusOptions are the settings of a Bus. The zero value is ready to use.
type Options struct {
	// Prefix comes before every key and channel, such as "app:".
	Prefix string
	// Node is a name for this process, for people. A unique part is added to it.
	Node string
	// Lease is how long the node counts as alive after its last sign of life.
	// Default 3 s, a day at most.
	Lease time.Duration
	// Timeout bounds a call whose context has no deadline. Default 5 s, a day at most.
	Timeout time.Duration
	// Concurrency is how many handlers run at once; more calls are answered with
	// CodeOverloaded. Default 64.
	Concurrency int
	// Grace is how long handlers may go on when Run's context ends. The node takes no
	// more calls then, and answers those that it has. Default 0: their contexts end at
	// once.
	Grace time.Duration
	// Codec makes requests and results. Default JSON. All of a bus use the same.
	Codec Codec
	// Keys, if set, prove that frames come from one who has a key: HMAC-SHA256. The
	// first one signs, all are accepted, so that keys can be changed while nodes run.
	Keys [][]byte
	// OnError, if set, sees what fails in the background. The bus goes on.
	OnError func(err error)
}

// Bus connects callers and nodes of one name over one subscriber connection. Run
// must be running for both. Its methods are safe for concurrent use.
type Bus struct {
	client lua.Client
	name   string
	keys   keys.Bus
	opts   Options
	node   string // this incarnation: a restarted process inherits nothing
	shard  bool   // sharded pub/sub, in a cluster
	link   notify.Link
	out    sender
	counts busCounts

	errands errands

	beat chan struct{} // asks for an announcement out of turn
	deaf atomic.Int64  // for how many ns the next link at which the node is not heard is left alone

	announcing chan struct{} // full while the node announces itself, or leaves
	echo       chan struct{} // the node heard itself
	large      chan struct{} // says that something is in stored
	look       chan struct{} // asks for a look at what is pending
	heard      atomic.Int64  // when the last word to itself came, UnixNano
	ups        atomic.Int64  // how often this or another node subscribed
	serial     atomic.Uint64
	busy       atomic.Int64 // handlers that run
	runs       atomic.Bool  // Run is running

	mu       sync.Mutex
	handlers map[string]handler
	served   map[string]*handlerCounts
	waiters  map[string]*waiter
	gathers  map[string]*gathering
	works    map[string]*work
	bound    map[string]time.Time // connections, and when each was renewed
	finished []string             // records that are done with
	stored   []string             // calls whose reply is to be fetched
	leaving  bool                 // no more calls are wanted
	closing  bool                 // none are taken

	ready     chan struct{} // closed once subscribed and announced
	announced sync.Once
}

// NewBus returns the bus of that name; nil options mean the defaults. Nothing is
// sent and nothing starts: call Run.
func NewBus(client lua.Client, name string, opts *Options) (*Bus, error) {
	b := &Bus{
		client: client, name: name,
		announcing: make(chan struct{}, 1),
		beat:       make(chan struct{}, 1), look: make(chan struct{}, 1), large: make(chan struct{}, 1), echo: make(chan struct{}, 1), ready: make(chan struct{}),
		handlers: make(map[string]handler), served: make(map[string]*handlerCounts), waiters: make(map[string]*waiter), gathers: make(map[string]*gathering),
		works: make(map[string]*work), bound: make(map[string]time.Time),
		errands: errands{wake: make(chan struct{}, 1)},
	}
	_, b.shard = client.(*redis.ClusterClient)
	if opts != nil {
		b.opts = *opts
	}
	b.opts.setDefaults()
	var err error
	if b.keys, err = keys.NewBus(b.opts.Prefix, name); err != nil {
		return nil, fmt.Errorf("luatomic: %w", err)
	}
	b.node = strings.ToLower(rand.Text()[:16])
	if b.opts.Node != "" {
		if err := lua.CheckName("node name", b.opts.Node); err != nil {
			return nil, fmt.Errorf("luatomic: %w", err)
		}
		b.node = b.opts.Node + "." + b.node
	}
	b.link.Shard = b.shard
	b.link.Channels = []string{b.keys.Outbox + b.node, b.keys.All}
	return b, nil
}

func (o *Options) setDefaults() {
	if o.Lease <= 0 {
		o.Lease = 3 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	o.Lease = min(max(o.Lease, time.Millisecond), maxTimeout)
	o.Timeout = min(max(o.Timeout, time.Millisecond), maxTimeout) // what a request can ask for
	if o.Concurrency <= 0 {
		o.Concurrency = 64
	}
	if o.Codec == nil {
		o.Codec = jsonCodec{}
	}
}

// Node is the name of this incarnation of the node: BusOptions.Node with a unique
// part.
func (b *Bus) Node() string { return b.node }

// Ready waits until Run is subscribed and has announced the methods served by then.
func (b *Bus) Ready(ctx context.Context) error {
	select {
	case <-b.ready:
		return nil
	default:
	}
	select {
	case <-b.ready:
		return nil
	case <-ctx.Done():
		return b.notReady(context.Cause(ctx))
	}
}

func (b *Bus) notReady(cause error) error {
	return fmt.Errorf("luatomic: bus %q is not connected; is its Run running? %w", b.name, cause)
}

// BusStats count what a bus has seen since it was made.
type Stats struct {
	Calls    int64 // calls made here
	Handled  int64 // requests whose handler ran here
	Late     int64 // replies of this node that nobody waited for any more
	Repeated int64 // replies of this node that were accepted before
	Stale    int64 // replies of this node after the call was given to another, or lost
	Fetched  int64 // requests that this node had missed and fetched
	Resyncs  int64 // looks at the records after a broken connection
	Refused  int64 // frames that were malformed or not signed by a known key
}

type busCounts struct {
	calls, handled, late, repeated, stale, fetched, resyncs, refused atomic.Int64
}

// Stats returns the counters so far.
func (b *Bus) Stats() Stats {
	c := &b.counts
	return Stats{
		Calls: c.calls.Load(), Handled: c.handled.Load(), Late: c.late.Load(), Repeated: c.repeated.Load(),
		Stale: c.stale.Load(), Fetched: c.fetched.Load(), Resyncs: c.resyncs.Load(), Refused: c.refused.Load(),
	}
}
