package actionhero

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/lua"
)

// Options are the settings of a Node. The zero value has ActionHero's defaults; the first three are its
// general.channel, general.serverToken and the id of the process.
type Options struct {
	// Channel is the channel that all nodes subscribe. Default "actionhero".
	Channel string
	// ServerToken is in every message, in clear text. Messages with another token are dropped. Default "change-me".
	ServerToken string
	// ServerID is this node's name. Default: a random one.
	ServerID string
	// Era is the era of the oldest node of the cluster. Default Promise.
	Era Era
	// Methods are the methods of the nodes with the number of their arguments, in the callback era without the
	// callback. In that era no other method is called, nor any with another number of arguments: the call would end the
	// processes. In the promise eras the list is optional. If it is given, no other method is called, and the numbers
	// are ignored.
	//
	// A node of the promise eras does not catch what its method throws: on Node.js 15 or newer its process ends. The
	// same holds for an async function that throws, and for the name of an object that is not a function, such as
	// api.connections.connections. List only functions that catch what they throw and answer with a JSON value.
	Methods map[string]int
	// Timeout is general.rpcTimeout: how long a call waits, and how long a handler may run. Default 5 s.
	Timeout time.Duration
	// Hold is how long the response to a caller of era Promise18 is delayed, counted from its call. Such a caller
	// registers its call after its PUBLISH has returned, and an earlier response is lost. A process under load may
	// need more. Default 20 ms; negative: no delay.
	Hold time.Duration
	// Concurrency is how many handlers run concurrently. Further requests are dropped and counted in Stats.Shed:
	// their callers wait for their timeout. Default 1024.
	Concurrency int
	// OnError, if set, gets failures in the background. The node continues.
	OnError func(error)
}

// A Request is a call for a handler.
type Request struct {
	Method   string
	ServerID string // of the caller
	// ConnectionID is the connection that was addressed, or empty if all nodes were.
	ConnectionID string
	Args         []json.RawMessage
}

// Bind unmarshals the arguments, one after the other. There may be more arguments than are bound, but not fewer.
func (r *Request) Bind(into ...any) error {
	if len(r.Args) < len(into) {
		return fmt.Errorf("actionhero: %s: %d arguments, at least %d expected", r.Method, len(r.Args), len(into))
	}
	for i, v := range into {
		if err := json.Unmarshal(r.Args[i], v); err != nil {
			return fmt.Errorf("actionhero: %s: argument %d: %w", r.Method, i+1, err)
		}
	}
	return nil
}

// A Handler answers a call. Its result becomes JSON; see Args for the callback era. An error sends no response in the
// promise eras, and [{}] in the callback era, as callback(error) does. Its context ends with Run, and after Timeout.
// What Run's end or the handler leaves unfinished (ErrUnanswered) has no response in any era.
type Handler func(ctx context.Context, r *Request) (any, error)

// A Message is a message that is neither a call nor a response, such as chat.
type Message struct {
	Type, ServerID string
	Raw            json.RawMessage // the whole message
}

// Node is a member of an ActionHero cluster: it calls methods, serves some, and publishes and receives messages, on
// one channel and over one subscriber connection. Run must be running for all but Publish. Its methods are safe for
// concurrent use.
type Node struct {
	client  lua.Client
	opts    Options
	counted bool // PUBLISH counts all receivers
	counts  counts
	slots   chan struct{}
	ready   chan struct{} // closed at the first subscription
	ended   chan struct{} // closed when Run receives nothing any more
	running atomic.Bool
	out     outbox
	work    sync.WaitGroup

	mu            sync.Mutex
	hub           *notify.Hub
	ctx           context.Context // of Run
	handlers      map[string]Handler
	subscriptions map[string]func(Message)
	owned         map[string]bool
	calls         map[string]*call
}

// Stats are the counters of a node since NewNode.
type Stats struct {
	Calls     int64 // calls published
	Served    int64 // requests whose handler ran
	Failed    int64 // handlers that returned an error or panicked
	Shed      int64 // requests dropped because too many handlers ran
	Unknown   int64 // requests for methods that are not served here
	BadToken  int64 // messages with another serverToken
	Malformed int64 // messages that are not a JSON object, or lack a field of their type
	Late      int64 // responses without a waiting call, and all but the first of each call
}

type counts struct {
	calls, served, failed, shed, unknown, badToken, malformed, late atomic.Int64
}

// Stats returns the counters so far.
func (n *Node) Stats() Stats {
	c := &n.counts
	return Stats{
		Calls: c.calls.Load(), Served: c.served.Load(), Failed: c.failed.Load(), Shed: c.shed.Load(),
		Unknown: c.unknown.Load(), BadToken: c.badToken.Load(), Malformed: c.malformed.Load(), Late: c.late.Load(),
	}
}

// NewNode returns a node; nil options mean the defaults. Nothing is sent and nothing starts: register the methods,
// then call Run.
func NewNode(client lua.Client, opts *Options) *Node {
	n := &Node{
		client: client, ready: make(chan struct{}), ended: make(chan struct{}), handlers: make(map[string]Handler),
		subscriptions: make(map[string]func(Message)),
		owned:         make(map[string]bool), calls: make(map[string]*call),
	}
	if opts != nil {
		n.opts = *opts
		n.opts.Methods = maps.Clone(opts.Methods)
	}
	o := &n.opts
	if o.Channel == "" {
		o.Channel = "actionhero"
	}
	if o.ServerToken == "" {
		o.ServerToken = "change-me"
	}
	if o.ServerID == "" {
		o.ServerID = freshName()
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Hold == 0 {
		o.Hold = 20 * time.Millisecond
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 1024
	}
	n.slots = make(chan struct{}, o.Concurrency)
	n.counted = !servers.Clustered(client)
	return n
}

// ServerID is this node's name.
func (n *Node) ServerID() string { return n.opts.ServerID }

// Handle serves a method, such as api.jobs.run, for requests to all nodes and to the connections that Own names. Other
// nodes can call only methods that have a Handle. A second Handle of the same name replaces the first; nil removes it.
//
// Nodes up to 17 end their process when they receive a call of a method that they do not have. Beside such nodes,
// call this method only for a connection of this node.
func (n *Node) Handle(method string, h Handler) error {
	if err := checkMethod(method); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if h == nil {
		delete(n.handlers, method)
	} else {
		n.handlers[method] = h
	}
	return nil
}

// OnMessage receives messages of a type, including this node's own. receive is called for one message at a time and
// must not block; nil removes it. If it panics, OnError gets the panic with its stack, and the node continues.
func (n *Node) OnMessage(messageType string, receive func(Message)) error {
	if err := checkType(messageType); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if receive == nil {
		delete(n.subscriptions, messageType)
	} else {
		n.subscriptions[messageType] = receive
	}
	return nil
}

// Own makes this node answer requests for a connection, in addition to those for all nodes.
func (n *Node) Own(connectionID string) error {
	if connectionID == "" {
		return fmt.Errorf("%w: an empty connection means all nodes", ErrBadName)
	}
	if err := checkConnection(connectionID); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.owned[connectionID] = true
	return nil
}

// Disown undoes an Own.
func (n *Node) Disown(connectionID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.owned, connectionID)
}

// Run stays subscribed until ctx ends, reconnects, and returns ctx's cause once the handlers have returned. A node runs
// once. Messages published while the connection is broken are lost: calls that wait for one end with ErrTimeout. Calls
// that wait when Run ends fail with ErrNotRunning. If the server refuses to subscribe the node again, OnError gets each
// refusal, and the node retries every 5 s.
func (n *Node) Run(ctx context.Context) error {
	if err := send.CheckClient(n.client); err != nil {
		return fmt.Errorf("actionhero: %w", err)
	}
	if !n.running.CompareAndSwap(false, true) {
		return errors.New("actionhero: Run was called before; make a new node")
	}
	hub := notify.NewHub(n.client)
	hub.Message = func(_, text string) { n.receive(text) }
	hub.Alone = true // each node is one of the receivers that a publisher counts
	hub.Confirmed = func(string, bool) {}
	hub.Lost = func(_ string, err error) { n.subscriptionLost(err) }
	n.mu.Lock()
	n.hub, n.ctx = hub, ctx
	n.mu.Unlock()
	n.subscribe(ctx, hub)
	hub.Close()
	close(n.ended)
	n.work.Wait()
	return context.Cause(ctx)
}

// subscribe stays subscribed until ctx ends.
func (n *Node) subscribe(ctx context.Context, hub *notify.Hub) {
	for ctx.Err() == nil {
		err := hub.Subscribe(ctx, n.opts.Channel)
		if err == nil {
			close(n.ready)
			<-ctx.Done()
			hub.Unsubscribe(n.opts.Channel)
			return
		}
		hub.Unsubscribe(n.opts.Channel)
		n.report(fmt.Errorf("actionhero: subscribe: %w", err))
		clock.Sleep(ctx, 100*time.Millisecond)
	}
}

// subscriptionLost reports why the node is not subscribed any more, where the server says so.
func (n *Node) subscriptionLost(err error) {
	var refused redis.Error
	select {
	case <-n.ready: // else subscribe has the error
		if errors.As(err, &refused) {
			n.report(fmt.Errorf("actionhero: subscribe: %w", err))
		}
	default:
	}
}

// Ready waits until Run is subscribed.
func (n *Node) Ready(ctx context.Context) error {
	select {
	case <-n.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w (%w)", ErrNotRunning, clock.EndOf(ctx))
	}
}

// Connected reports whether the node is subscribed now.
func (n *Node) Connected() bool {
	n.mu.Lock()
	hub := n.hub
	n.mu.Unlock()
	return hub != nil && hub.Subscribed(n.opts.Channel)
}

func (n *Node) report(err error) {
	if n.opts.OnError != nil {
		n.opts.OnError(err)
	}
}

// Publish sends a message of an application-defined type with these fields. Nodes pass it to
// api.redis.subscriptionHandlers of that type. Publish sets messageType, serverToken and serverId. One PUBLISH, at most
// once; Run need not be running. Use Chat for chat.
func (n *Node) Publish(ctx context.Context, messageType string, fields map[string]any) error {
	if err := checkType(messageType); err != nil {
		return err
	}
	if messageType == typeChat {
		return fmt.Errorf("%w: use Chat; nodes fail on chat messages of another form", ErrBadName)
	}
	text, err := []byte("{"), error(nil)
	for _, f := range []struct{ name, value string }{
		{"messageType", messageType}, {"serverToken", n.opts.ServerToken}, {"serverId", n.opts.ServerID},
	} {
		if _, taken := fields[f.name]; taken {
			return fmt.Errorf("%w: field %q is set by the node", ErrBadName, f.name)
		}
		if text, err = appendField(text, f.name, f.value); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if text, err = appendField(text, name, fields[name]); err != nil {
			return err
		}
	}
	_, err = n.publish(ctx, append(text, '}'))
	return err
}

func appendField(text []byte, name string, value any) ([]byte, error) {
	key, err := encode(name)
	if err != nil {
		return nil, fmt.Errorf("actionhero: field %q: %w", name, err)
	}
	raw, err := encode(value)
	if err != nil {
		return nil, fmt.Errorf("actionhero: field %q: %w", name, err)
	}
	if len(text) > 1 {
		text = append(text, ',')
	}
	text = append(append(text, key...), ':')
	return append(text, raw...), nil
}
