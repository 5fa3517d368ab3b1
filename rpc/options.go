package rpc

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/luatomic/luatomic/internal/exact"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// Options are the settings of a Bus. The zero value is ready to use.
type Options struct {
	// Prefix comes before every key and channel, such as "app:".
	Prefix string
	// Node is a readable name for this process. A unique part is appended, see Bus.Node.
	Node string
	// Lease is how long the node counts as alive after its last heartbeat, by the server's clock. The node sends a
	// heartbeat in each third of a lease. Default 3 s, at most a day.
	Lease time.Duration
	// Timeout bounds a call whose context has no deadline, and is the minimum time that the handler of a call with a
	// key has. Default 5 s, at most a day.
	Timeout time.Duration
	// Concurrency is how many handlers run at the same time. The node refuses further calls, and other nodes get them.
	// Default 64. ServeOptions bound single methods.
	Concurrency int
	// Grace is how long handlers may continue after Run's context ends. In that time the node takes no new calls and
	// answers those that it has. Before that, a slow server has the same time, at least 1 s, to withdraw the node.
	// Default 5 s. Below 0, the contexts of the handlers end immediately.
	Grace time.Duration
	// Codec encodes requests and results. All processes of a bus must use the same codec, except for methods with their
	// own codec. Calls with CallOptions.Key need equal bytes for equal requests, even from callers of two builds: use
	// protobuf with Deterministic, and no gob of maps. Default JSON, which refuses a string that is not UTF-8.
	Codec lua.Codec
	// Wrap are run around each handler of this node, the first one outermost. Each has the request's headers in call,
	// and either calls next once or returns an error, which goes to the caller. A request whose next failed fails, even
	// if they return nil. See ReplyHeader for headers of the reply. They run before the request is decoded, and after
	// the result is encoded.
	Wrap []func(ctx context.Context, call CallInfo, next func(ctx context.Context) error) error
	// WrapCall are run around each call that this process makes, the first one outermost, and before those of
	// CallOptions. They see one call, whatever the library retries below them, and one gather, whose headers go to each
	// node: next returns when the gather has ended, with the error that ended it early. Each calls next once or returns
	// an error. A call whose next failed fails, even if they return nil. Casts and streams are not wrapped.
	WrapCall []func(ctx context.Context, call *Outgoing, next func(ctx context.Context) error) error
	// Keys, if set, sign each frame with HMAC-SHA256. The first key signs, and all are accepted, so that keys can be
	// rotated while nodes run. All processes of a bus need a common key. A key has at least 32 bytes.
	Keys [][]byte
	// OnError, if set, receives the errors of background work. The bus continues after each. An outage of its
	// connection is reported when it begins, then every 10 s. OnError is called from several goroutines and must not
	// block.
	OnError func(err error)
}

// decodeAs decodes a value of that type.
func decodeAs[T any](c lua.Codec, data []byte) (v T, err error) {
	if t := reflect.TypeFor[T](); t.Kind() == reflect.Pointer && c != (exact.Codec{}) {
		p := reflect.New(t.Elem())
		if err = c.Unmarshal(data, p.Interface()); err == nil {
			v = p.Interface().(T)
		}
		return v, err
	}
	err = c.Unmarshal(data, &v)
	return v, err
}

// minKey is the least number of bytes of a key for signing.
const minKey = 32

func (o *Options) check() error {
	for i, key := range o.Keys {
		if len(key) < minKey {
			return fmt.Errorf("luatomic: key %d has %d bytes, at least %d; make one with crypto/rand", i,
				len(key), minKey)
		}
	}
	return nil
}

func (o *Options) setDefaults() {
	if o.Lease <= 0 {
		o.Lease = 3 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Grace == 0 {
		o.Grace = 5 * time.Second
	}
	o.Lease = min(max(o.Lease, time.Millisecond), wire.MaxTimeout)
	o.Timeout = min(max(o.Timeout, time.Millisecond), wire.MaxTimeout) // a node refuses a request that asks for more
	if o.Concurrency <= 0 {
		o.Concurrency = 64
	}
	if o.Codec == nil {
		o.Codec = exact.Codec{}
	}
}
