package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// NodeInfo is what a node says about itself with each sign of life.
type Node struct {
	// Node is the name of the incarnation, as CallOptions.Node takes it.
	Node string `json:"node"`
	// Lease is how long it still counts as alive.
	Lease time.Duration `json:"-"`
	// Methods are those that it serves, the first hundred.
	Methods []string `json:"methods"`
	// Counts are those of the methods that it has run.
	Counts map[string]MethodCounts `json:"counts,omitempty"`
	// Running are its handlers that run, of Concurrency.
	Running     int64 `json:"running"`
	Concurrency int   `json:"concurrency"`
	// Handled counts the requests that it has handled, Calls the calls that it made.
	Handled int64 `json:"handled"`
	Calls   int64 `json:"calls"`
}

// about is the text that Nodes reads.
func (b *Bus) about() string {
	b.mu.Lock()
	methods := slices.Sorted(maps.Keys(b.handlers))
	methods = methods[:min(len(methods), 100)]
	counts := b.countsLocked(methods)
	b.mu.Unlock()
	info := Node{
		Node: b.node, Methods: methods, Counts: counts, Running: b.busy.Load(), Concurrency: b.opts.Concurrency,
		Handled: b.counts.handled.Load(), Calls: b.counts.calls.Load(),
	}
	text, err := json.Marshal(info)
	if err != nil {
		return "{}" // it has no field that could fail
	}
	return string(text)
}

// Nodes lists the live nodes of the bus, those that only call included, a thousand at
// most. It needs no Run.
func (b *Bus) Nodes(ctx context.Context) ([]Node, error) {
	rows, err := gen.RPCNodes(ctx, b.client, gen.RPCNodesParams{Nodes: b.keys.Nodes, About: b.keys.About, Texts: true})
	if err != nil {
		return nil, fmt.Errorf("luatomic: nodes of bus %q: %w", b.name, err)
	}
	out := make([]Node, 0, len(rows))
	for _, r := range rows {
		if r.Left <= 0 {
			continue
		}
		var info Node
		_ = json.Unmarshal([]byte(r.Text), &info) // a text of another version leaves it empty
		info.Node, info.Lease = r.Node, r.Left
		out = append(out, info)
	}
	return out, nil
}

// boundFor is how long a binding stays without its node. It counts only while the
// node lives.
const boundFor = time.Hour

// Bind makes this node the owner of a connection, so that calls with
// CallOptions.Connection come here. It fails with ErrConnectionTaken when another live
// node owns it. The binding stays until Unbind, or until this node dies.
func (b *Bus) Bind(ctx context.Context, connection string) error {
	return b.bind(ctx, connection, lua.Opt[string]{})
}

// Rebind takes a connection from the node that owns it, named by its incarnation. It
// fails with ErrConnectionTaken when another one owns it, or none.
func (b *Bus) Rebind(ctx context.Context, connection, from string) error {
	return b.bind(ctx, connection, lua.Some(from))
}

func (b *Bus) bind(ctx context.Context, connection string, from lua.Opt[string]) error {
	if err := lua.CheckName("connection", connection); err != nil {
		return fmt.Errorf("luatomic: %w", err)
	}
	if err := b.Ready(ctx); err != nil {
		return err
	}
	r, err := gen.RPCBind(ctx, b.client, gen.RPCBindParams{
		Binding: b.keys.Connection(connection), Nodes: b.keys.Nodes, Node: b.node, From: from, Keep: boundFor,
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil:
		return fmt.Errorf("luatomic: bind %q: %w", connection, err)
	case !r.Bound:
		delete(b.bound, connection)
		return fmt.Errorf("%w: %s", ErrConnectionTaken, r.Owner)
	}
	b.bound[connection] = time.Now()
	return nil
}

// Unbind gives up a connection and says whether this node owned it.
func (b *Bus) Unbind(ctx context.Context, connection string) (bool, error) {
	if err := lua.CheckName("connection", connection); err != nil {
		return false, fmt.Errorf("luatomic: %w", err)
	}
	b.mu.Lock()
	delete(b.bound, connection)
	b.mu.Unlock()
	owned, err := gen.RPCUnbind(ctx, b.client, gen.RPCUnbindParams{Binding: b.keys.Connection(connection), Node: b.node})
	if err != nil {
		return false, fmt.Errorf("luatomic: unbind %q: %w", connection, err)
	}
	return owned, nil
}

// renew binds anew what was bound long ago, up to 200 connections at a time.
func (b *Bus) renew(ctx context.Context) {
	b.mu.Lock()
	var old []string
	for connection, at := range b.bound {
		if time.Since(at) > boundFor/3 && len(old) < maxPart {
			old = append(old, connection)
		}
	}
	b.mu.Unlock()
	for _, connection := range old {
		if err := b.renewOne(ctx, connection); err != nil {
			b.failed(ctx, err)
		}
	}
}

// renewOne binds a connection that is this node's anew, and one that Redis has lost. One
// that another took since is that one's, also when that is dead; one that is unbound at
// this moment stays so.
func (b *Bus) renewOne(ctx context.Context, connection string) error {
	r, err := gen.RPCBind(ctx, b.client, gen.RPCBindParams{
		Binding: b.keys.Connection(connection), Nodes: b.keys.Nodes, Node: b.node, From: lua.Some(b.node), Keep: boundFor,
	})
	if err != nil {
		return fmt.Errorf("luatomic: bind %q: %w", connection, err)
	}
	b.mu.Lock()
	_, mine := b.bound[connection]
	taken := !r.Bound && r.Owner != ""
	if taken {
		delete(b.bound, connection)
	} else if mine {
		b.bound[connection] = time.Now()
	}
	b.mu.Unlock()
	switch {
	case !mine:
		return nil
	case taken:
		return fmt.Errorf("%w: %s", ErrConnectionTaken, r.Owner)
	case !r.Bound:
		return b.bind(ctx, connection, lua.Opt[string]{})
	}
	return nil
}
