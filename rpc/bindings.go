package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/nodes"
	"github.com/luatomic/luatomic/internal/unquoted"
	"github.com/luatomic/luatomic/lua"
)

// boundFor is how long a binding outlives its last renewal. It counts only while its node lives.
const boundFor = time.Hour

// bindings are the connections that this node owns, and when each was renewed.
type bindings struct {
	mu    sync.Mutex
	bound map[string]time.Time
}

func (o *bindings) init() { o.bound = make(map[string]time.Time) }

// forget drops all of them: they are those of the last incarnation, which is dead.
func (o *bindings) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.bound)
}

func (o *bindings) add(connection string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bound[connection] = time.Now()
}

func (o *bindings) has(connection string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, bound := o.bound[connection]
	return bound
}

func (o *bindings) remove(connection string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.bound, connection)
}

// old returns at most n connections that are due to be renewed.
func (o *bindings) old(n int) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var old []string
	for connection, at := range o.bound {
		if time.Since(at) > boundFor/3 && len(old) < n {
			old = append(old, connection)
		}
	}
	return old
}

// renewed notes a renewal. It reports false where the connection was unbound meanwhile.
func (o *bindings) renewed(connection string) (bound bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, bound = o.bound[connection]; bound {
		o.bound[connection] = time.Now()
	}
	return bound
}

// Bind makes this node the owner of a connection, so that calls with CallOptions.Connection come here. It fails with
// ErrConnectionTaken when another live node owns it. The binding lasts until Unbind, or until this node dies or its Run
// ends; the node renews it. Checking the owner and binding are one script, on one key that expires after an hour
// without renewal. Cost: one round trip. Bind waits for Ready.
func (b *Bus) Bind(ctx context.Context, connection string) error {
	return b.bind(ctx, connection, lua.Opt[string]{})
}

// Rebind takes a connection from the node that owns it, which from names as in Bus.Node. It fails with
// ErrConnectionTaken when another node owns it, or none, and with lua.ErrBadName where from is empty: Bind takes a
// connection that is free. All else is as in Bind.
func (b *Bus) Rebind(ctx context.Context, connection, from string) error {
	err := checkNode(from)
	if from == "" {
		err = fmt.Errorf("%w: from is empty; use Bind for a connection that is free", lua.ErrBadName)
	}
	if err != nil {
		return fmt.Errorf("luatomic: %w", err)
	}
	return b.bind(ctx, connection, lua.Some(from))
}

func (b *Bus) bind(ctx context.Context, connection string, from lua.Opt[string]) error {
	if err := lua.CheckName("connection", connection); err != nil {
		return fmt.Errorf("luatomic: %w", err)
	}
	if err := b.Ready(ctx); err != nil {
		return err
	}
	r, err := b.runBind(ctx, connection, from)
	if err != nil {
		return err
	}
	if !r.Bound {
		b.bindings.remove(connection)
		return taken(connection, r.Owner)
	}
	b.bindings.add(connection)
	return nil
}

func (b *Bus) runBind(ctx context.Context, connection string, from lua.Opt[string]) (gen.RPCBindResult, error) {
	r, err := gen.RPCBind(ctx, b.client, gen.RPCBindParams{
		Binding: b.keys.Connection(connection), Nodes: b.keys.Nodes, Node: b.Node(), From: from, Keep: boundFor,
	})
	if err != nil {
		return r, fmt.Errorf("luatomic: bind %q: %w", connection, err)
	}
	return r, nil
}

func taken(connection, owner string) error {
	if owner == "" {
		return fmt.Errorf("%w: no node owns %q; use Bind", ErrConnectionTaken, connection)
	}
	return fmt.Errorf("%w: %s; Rebind takes %q from it", ErrConnectionTaken, owner, connection)
}

// Unbind gives up a connection and reports whether this node owned it. Check and removal are one script and one round
// trip.
func (b *Bus) Unbind(ctx context.Context, connection string) (bool, error) {
	if err := lua.CheckName("connection", connection); err != nil {
		return false, fmt.Errorf("luatomic: %w", err)
	}
	b.bindings.remove(connection)
	r, err := gen.RPCBind(ctx, b.client, gen.RPCBindParams{
		Binding: b.keys.Connection(connection), Nodes: b.keys.Nodes, Node: b.Node(),
	})
	if err != nil {
		return false, fmt.Errorf("luatomic: unbind %q: %w", connection, err)
	}
	return r.Bound, nil
}

// ownerOf returns the node that owns a connection, none where no node does.
func (b *Bus) ownerOf(ctx context.Context, connection string) (string, error) {
	owner, err := nodes.Read(ctx, b.client, redis.NewStringCmd(ctx, "get", b.keys.Connection(connection))).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("luatomic: read the owner of connection %q: %w: %w", connection, lua.ErrNotExecuted,
			unquoted.Error(err))
	}
	return owner, nil
}

// renewBindings binds again what was bound long ago, at most 200 connections in one pipeline. A connection that another
// node took is that node's, also when the node is dead; one that is unbound at this moment stays unbound; one that
// Redis has lost is bound anew.
func (b *Bus) renewBindings(ctx context.Context) {
	old := b.bindings.old(maxBatch)
	if len(old) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, b.opts.Lease/3)
	defer cancel()
	batch := lua.NewBatch(b.client)
	futures := make([]*lua.Future[gen.RPCBindResult], len(old))
	for i, connection := range old {
		futures[i] = gen.RPCBindIn(batch, gen.RPCBindParams{
			Binding: b.keys.Connection(connection), Nodes: b.keys.Nodes, Node: b.Node(),
			From: lua.Some(b.Node()), Keep: boundFor,
		})
	}
	if err := batch.Exec(bounded); err != nil {
		b.report(ctx, fmt.Errorf("luatomic: renew connections of bus %q: %w", b.name, err))
	}
	for i, connection := range old {
		r, err := futures[i].Get()
		switch {
		case err != nil || !b.bindings.has(connection):
		case r.Bound:
			b.bindings.renewed(connection)
		case r.Owner != "":
			b.bindings.remove(connection)
			b.report(ctx, taken(connection, r.Owner))
		default:
			if err := b.bindAnew(bounded, connection); err != nil {
				b.report(ctx, err)
			}
		}
	}
}

// bindAnew binds a connection that Redis has lost. One that is unbound meanwhile is unbound once more: the server may
// have bound it after that. It waits for no heartbeat.
func (b *Bus) bindAnew(ctx context.Context, connection string) error {
	r, err := b.runBind(ctx, connection, lua.Opt[string]{})
	switch {
	case err != nil:
		return err
	case !r.Bound:
		b.bindings.remove(connection)
		return taken(connection, r.Owner)
	case !b.bindings.renewed(connection):
		_, err = b.Unbind(ctx, connection)
	}
	return err
}
