package rpc

import (
	"encoding/json"
	"time"

	"github.com/luatomic/luatomic/internal/wire"
)

// Options are the settings of a Bus. The zero value is ready to use.
type Options struct {
	// Prefix comes before every key and channel, such as "app:".
	Prefix string
	// Node is a readable name for this process. A unique part is added to it, see Bus.Node.
	Node string
	// Lease is how long the node counts as alive after its last heartbeat, by the server's clock. A heartbeat is sent
	// each third of it. Default 3 s, at most a day.
	Lease time.Duration
	// Timeout bounds a call whose context has no deadline. Default 5 s, at most a day.
	Timeout time.Duration
	// Concurrency is how many handlers run at the same time; further calls are answered with CodeOverloaded.
	// Default 64.
	Concurrency int
	// Grace is how long handlers may continue after Run's context ends. The node takes no new calls in that time and
	// answers those that it has. Default 0: the contexts of the handlers end immediately.
	Grace time.Duration
	// Codec encodes requests and results. All processes of a bus use the same. Default JSON.
	Codec Codec
	// Keys, if set, sign each frame with HMAC-SHA256. The first one signs, each of them is accepted, so that keys can
	// be changed while nodes run. All processes of a bus need a common key.
	Keys [][]byte
	// OnError, if set, receives the errors of background work. The bus continues after each. It is called from
	// several goroutines and must not block.
	OnError func(err error)
}

// Codec encodes and decodes requests and results. It must be safe for concurrent use.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

func (o *Options) setDefaults() {
	if o.Lease <= 0 {
		o.Lease = 3 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	o.Lease = min(max(o.Lease, time.Millisecond), wire.MaxTimeout)
	o.Timeout = min(max(o.Timeout, time.Millisecond), wire.MaxTimeout) // a node refuses a request that asks for more
	if o.Concurrency <= 0 {
		o.Concurrency = 64
	}
	if o.Codec == nil {
		o.Codec = jsonCodec{}
	}
}
