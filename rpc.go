package luatomic

import (
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/rpc"
)

// The nouns of calls. Package rpc documents their methods.
type (
	// Bus connects the callers and nodes of one name; see [rpc.Bus].
	Bus = rpc.Bus
	// BusOptions are the settings of a Bus; see [rpc.Options].
	BusOptions = rpc.Options
	// Method is a typed method of a bus; see [rpc.Method].
	Method[Req, Res any] = rpc.Method[Req, Res]
	// CallOptions are the settings of one call; see [rpc.CallOptions].
	CallOptions = rpc.CallOptions
	// RemoteError is the answer of a handler that failed; see [rpc.RemoteError].
	RemoteError = rpc.RemoteError
)

// Errors of calls.
var (
	// ErrNoResponders reports that no node could take the call; see [rpc.ErrNoResponders].
	ErrNoResponders = rpc.ErrNoResponders
	// ErrNodeLost reports that the node which had the call is dead; see [rpc.ErrNodeLost].
	ErrNodeLost = rpc.ErrNodeLost
	// ErrOverloaded reports that all handlers of all nodes that were asked are busy; see [rpc.ErrOverloaded].
	ErrOverloaded = rpc.ErrOverloaded
)

// NewBus returns the bus of that name; nil options mean the defaults. Nothing is sent and nothing starts: call Run. See
// [rpc.New].
func NewBus(client lua.Client, name string, opts *BusOptions) (*Bus, error) {
	return rpc.New(client, name, opts)
}

// NewMethod returns the method of that name with its types of request and result. See [rpc.NewMethod].
func NewMethod[Req, Res any](name string) Method[Req, Res] { return rpc.NewMethod[Req, Res](name) }
