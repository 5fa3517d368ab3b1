package rpc

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// Bus connects the callers and nodes of one name over one subscribed connection. Calls and handlers both need Run. Its
// methods are safe for concurrent use.
type Bus struct {
	client lua.Client
	name   string
	keys   keys.Bus
	opts   Options
	shard  bool // sharded pub/sub, in a cluster
	sealer wire.Sealer
	counts counters

	incarnation atomic.Pointer[string] // see Node
	ran         bool                   // Run was called

	link      link
	liveness  liveness
	directory directory
	outbox    outbox
	pending   pending
	serving   serving
	bindings  bindings

	reads    *send.Pipeline[*redis.StringCmd] // GET and HGET; a caller waits no longer than its context
	bodySize atomic.Int64                     // of the last body that was read; the next one may be as large
}

// New returns the bus of that name; nil options mean the defaults. It sends and starts nothing: call Run. It fails
// with lua.ErrBadName for a name, prefix or node that cannot be part of a key, and for a client that is nil.
func New(client lua.Client, name string, opts *Options) (*Bus, error) {
	if err := send.CheckClient(client); err != nil {
		return nil, fmt.Errorf("luatomic: bus %q: %w", name, err)
	}
	b := &Bus{client: client, name: name}
	b.shard = servers.Clustered(client)
	if opts != nil {
		b.opts = *opts
	}
	b.opts.setDefaults()
	if err := b.opts.check(); err != nil {
		return nil, err
	}
	var err error
	if b.keys, err = keys.NewBus(b.opts.Prefix, name); err != nil {
		return nil, fmt.Errorf("luatomic: %w", err)
	}
	if b.opts.Node != "" {
		if err := keys.CheckName("node name", b.opts.Node); err != nil {
			return nil, fmt.Errorf("luatomic: %w", err)
		}
	}
	b.rename()
	b.setUp()
	return b, nil
}

// rename starts a new incarnation. Messages for the last incarnation do not reach this one.
func (b *Bus) rename() {
	name := strings.ToLower(rand.Text()[:16])
	if b.opts.Node != "" {
		name = b.opts.Node + "." + name
	}
	b.incarnation.Store(&name)
}

func (b *Bus) setUp() {
	b.sealer = wire.Sealer{Keys: b.opts.Keys, Bus: b.keys.Nodes}
	b.liveness.init()
	b.directory.init()
	b.outbox.init()
	b.pending.init()
	b.serving.init()
	b.bindings.init()
	b.reads = send.NewPipeline(b.readTogether)
}

// Node is the unique name of this node: Options.Node and a random part, which changes with each Run after the first.
// Use it as CallOptions.Node.
func (b *Bus) Node() string { return *b.incarnation.Load() }

// Ready waits until Run has subscribed and has announced all methods that the bus serves. From then on every bus can
// call them. If Run is not running, or its context has ended, Ready waits for the next Run. It fails when ctx ends.
func (b *Bus) Ready(ctx context.Context) error {
	_, version := b.serving.announced()
	if err := b.liveness.await(ctx, version, nil); err != nil {
		return b.notReady(err)
	}
	return nil
}

// notReady is the error of an operation that needs Run. It has the reason why Run cannot connect as text only, so that
// it does not match that error.
func (b *Bus) notReady(cause error) error {
	if b.liveness.hasEnded() {
		cause = fmt.Errorf("%w: %w", errEnded, cause)
	} else if why := b.liveness.failure(); why != nil {
		return fmt.Errorf("luatomic: bus %q is not connected: %v: %w", b.name, why, cause)
	}
	return fmt.Errorf("luatomic: bus %q is not connected; is its Run running? %w", b.name, cause)
}

// report passes an error of background work to OnError, unless ctx has ended.
func (b *Bus) report(ctx context.Context, err error) {
	if err != nil && b.opts.OnError != nil && ctx.Err() == nil {
		b.opts.OnError(err)
	}
}

func (b *Bus) seal(frame []byte) []byte { return b.sealer.Seal(frame) }

// notice encodes and signs a notice.
func (b *Bus) notice(kind wire.NoticeKind, texts ...string) []byte {
	n := wire.Notice{Kind: kind, Texts: texts}
	return b.seal(n.Encode())
}

// inlineMax is the largest part or cast that is published. A larger part is stored and fetched by its receiver, because
// the server disconnects subscribers whose output buffer grows too large.
const inlineMax = 64 << 10

// outlasting returns a context for work that must finish although ctx has ended: it ends after d.
func outlasting(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// offer sends to a channel of capacity one, if it is empty.
func offer(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
