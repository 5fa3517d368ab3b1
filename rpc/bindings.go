package rpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

const (
	// boundFor is how long a binding outlives its last renewal. It counts only while its node lives.
	boundFor = time.Hour
	// doubtFor is how long a copy of a request may be on its way.
	doubtFor = time.Minute
)

// bindings are the connections that this node owns, and when each was renewed.
type bindings struct {
	mu    sync.Mutex
	bound map[string]time.Time
	// doubted are connections whose owner at the server may differ from this node's view, and since when: the reply to
	// a request was lost, so another copy of it may arrive.
	doubted map[string]time.Time
	runs    int // how often all were forgotten: the number of the Run
	// asked are connections about which a Bind, Rebind or Unbind is asking the server. The channel is closed when that
	// call has ended.
	asked map[string]chan struct{}
}

func (o *bindings) init() {
	o.bound, o.doubted = make(map[string]time.Time), make(map[string]time.Time)
	o.asked = make(map[string]chan struct{})
}

// begin waits until no other request of this node about the connection is under way, so that replies come in the order
// in which the server has run the requests. It fails when ctx ends. Otherwise the caller must call end.
func (o *bindings) begin(ctx context.Context, connection string) error {
	for {
		o.mu.Lock()
		ended, asked := o.asked[connection]
		if !asked {
			o.asked[connection] = make(chan struct{})
		}
		o.mu.Unlock()
		if !asked {
			return nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return fmt.Errorf("%w: another request about it is under way: %w", lua.ErrNotExecuted, endOf(ctx))
		}
	}
}

func (o *bindings) end(connection string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.asked[connection])
	delete(o.asked, connection)
}

// forget drops all bindings: they belong to the last incarnation, which is dead.
func (o *bindings) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.bound)
	clear(o.doubted)
	o.runs++
}

// run is the number of the Run.
func (o *bindings) run() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.runs
}

func (o *bindings) doubt(connection string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.doubted[connection] = time.Now()
}

// add records a connection that was bound in that Run. It reports false in a later Run: the node that asked for the
// connection is dead, or it is this node, which then does not keep it.
func (o *bindings) add(connection string, run int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if run != o.runs {
		o.doubted[connection] = time.Now()
		return false
	}
	o.bound[connection] = time.Now()
	return true
}

func (o *bindings) has(connection string) bool { return !o.since(connection).IsZero() }

func (o *bindings) remove(connection string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.bound, connection)
}

// since is when the connection was bound or last renewed. It is zero if the connection is not bound.
func (o *bindings) since(connection string) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bound[connection]
}

// lose drops a connection that another node has. It reports false if the connection was bound again or unbound after it
// was read.
func (o *bindings) lose(connection string, since time.Time) (lost bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if lost = o.bound[connection].Equal(since); lost {
		delete(o.bound, connection)
	}
	return lost
}

// doubts reports whether a heartbeat may free the connection while another request about it is under way.
func (o *bindings) doubts(connection string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, doubted := o.doubted[connection]
	return doubted
}

// due returns the connections that are to be renewed or doubted.
func (o *bindings) due() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	due := slices.Collect(maps.Keys(o.doubted))
	for connection, at := range o.bound {
		if _, doubted := o.doubted[connection]; !doubted && time.Since(at) > boundFor/3 {
			due = append(due, connection)
		}
	}
	return due
}

// distrust makes the next heartbeat renew all connections: the server may have lost them with the lease of the node, or
// given them to other nodes.
func (o *bindings) distrust() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for connection, at := range o.bound {
		o.bound[connection] = at.Add(-boundFor)
	}
}

// agreed records that the server and this node agree about the connection.
func (o *bindings) agreed(connection string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.doubted[connection]) > doubtFor {
		delete(o.doubted, connection)
	}
}

// renewed records the renewal of a connection whose binding has not changed since that time. It reports false if the
// connection was unbound meanwhile.
func (o *bindings) renewed(connection string, since time.Time) (bound bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at, bound := o.bound[connection]
	if bound && at.Equal(since) { // else the server may have lost it again
		o.bound[connection] = time.Now()
	}
	return bound
}

// Bind makes this node the owner of a connection, so that calls with CallOptions.Connection come here. It fails with
// ErrConnectionTaken when another live node owns it. The binding lasts until Unbind, or until this node dies or its Run
// ends. The node renews it, and binds the connection again if Redis has lost its data. After an error this node does
// not own the connection: what a request of unknown outcome binds is freed with the next heartbeats. Checking the owner
// and binding are one script, on one key that expires after an hour without renewal. Cost: one round trip. Bind waits
// for Ready.
func (b *Bus) Bind(ctx context.Context, connection string) error {
	return b.bind(ctx, connection, lua.Opt[string]{})
}

// Rebind takes a connection over from its owner, whose Bus.Node is from. It fails with ErrConnectionTaken if another
// node owns the connection, or none does, and with lua.ErrBadName if from is empty: use Bind for a free connection. The
// old owner is notified, and does not bind the connection again. Everything else is as in Bind.
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
	if err := keys.CheckName("connection", connection); err != nil {
		return fmt.Errorf("luatomic: %w", err)
	}
	if err := b.Ready(ctx); err != nil {
		return err
	}
	if err := b.bindings.begin(ctx, connection); err != nil {
		return fmt.Errorf("luatomic: bind %q: %w", connection, err)
	}
	defer b.bindings.end(connection)
	run := b.bindings.run()
	r, _, err := b.runBind(ctx, connection, from, boundFor)
	switch {
	case err != nil:
		return fmt.Errorf("luatomic: bind %q: %w", connection, err)
	case !r.Bound:
		b.bindings.remove(connection)
		return taken(connection, r.Owner)
	case !b.bindings.add(connection, run):
		return fmt.Errorf("luatomic: bind %q: the Run of bus %q was another one: %w; bind it again", connection, b.name,
			errEnded)
	}
	if former, _ := from.Get(); former != "" && former != b.Node() {
		b.outbox.add(b.keys.Outbox+former, wire.Moved, connection)
	}
	return nil
}

// checkOwner gives up a connection that another node has taken, so that no renewal binds it again once it is free. The
// notice may be late, so checkOwner asks the server for the owner.
func (b *Bus) checkOwner(s *session, connection string) {
	ctx, cancel := context.WithTimeout(s.ctx, b.opts.Lease)
	defer cancel()
	if b.bindings.begin(ctx, connection) != nil {
		return
	}
	defer b.bindings.end(connection)
	owner, err := b.ownerOf(ctx, connection)
	if err == nil && owner != s.node {
		b.bindings.remove(connection)
	}
}

// runBind binds the connection, or frees it if keep is 0. again reports that an earlier attempt may have done so.
func (b *Bus) runBind(
	ctx context.Context, connection string, from lua.Opt[string], keep time.Duration,
) (r rpcscript.BindResult, again send.Resent, err error) {
	doubted := b.bindings.doubts(connection)
	r, err = rpcscript.Bind(send.WatchResent(ctx, &again), b.client, rpcscript.BindParams{
		Binding: b.keys.Connection(connection), Nodes: b.keys.Nodes, Node: b.Node(), From: from, Keep: keep,
	})
	if doubted || bool(again) || errors.Is(err, lua.ErrOutcomeUnknown) {
		b.bindings.doubt(connection)
	}
	return r, again, err
}

func taken(connection, owner string) error {
	if owner == "" {
		return fmt.Errorf("%w: no node owns %q; use Bind", ErrConnectionTaken, connection)
	}
	return fmt.Errorf("%w: %s; Rebind takes %q from it", ErrConnectionTaken, owner, connection)
}

// Unbind gives up a connection and reports whether this node owned it, whichever Bind of this node had bound it. It
// waits for a Bind or Unbind of the same connection that is in progress on this node. It also works when ctx has ended
// before, as that of a socket's request has, and then takes up to 10 s. After an error of the script the node runs
// no call for the connection any more, and the next heartbeats free it. Check and removal are one script and one round
// trip.
func (b *Bus) Unbind(ctx context.Context, connection string) (bool, error) {
	if err := keys.CheckName("connection", connection); err != nil {
		return false, fmt.Errorf("luatomic: %w", err)
	}
	ctx, cancel := clock.Outlast(ctx)
	defer cancel()
	return b.unbind(ctx, connection)
}

// unbind has the next heartbeats free a connection that it could not free, as they do with all that is in doubt.
func (b *Bus) unbind(ctx context.Context, connection string) (bool, error) {
	if err := b.bindings.begin(ctx, connection); err != nil {
		return false, fmt.Errorf("luatomic: unbind %q: %w", connection, err)
	}
	defer b.bindings.end(connection)
	owned := b.bindings.has(connection)
	b.bindings.remove(connection)
	r, again, err := b.runBind(ctx, connection, lua.Opt[string]{}, 0)
	if err != nil {
		b.bindings.doubt(connection)
		return false, fmt.Errorf("luatomic: unbind %q: the next heartbeats free it, or call Unbind again: %w",
			connection, err)
	}
	return r.Bound || bool(again) && owned && r.Owner == "", nil
}

// ownerOf returns the node that owns a connection, or an empty name if no node does.
func (b *Bus) ownerOf(ctx context.Context, connection string) (string, error) {
	owner, err := servers.Read(ctx, b.client, redis.NewStringCmd(ctx, "get", b.keys.Connection(connection))).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("luatomic: read the owner of connection %q: %w: %w", connection, lua.ErrNotExecuted,
			show.Unquoted(err))
	}
	return owner, nil
}

// renewBindings binds again what was bound long ago or may be lost, and settles with the server what is doubted: 200
// connections in one pipeline. It goes on for a third of a lease, and leaves the rest to the next heartbeat.
func (b *Bus) renewBindings(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, b.opts.Lease/3)
	defer cancel()
	for due := range slices.Chunk(b.bindings.due(), maxBatch) {
		if bounded.Err() != nil {
			return
		}
		b.renewSome(ctx, bounded, due)
	}
}

// renewSome renews these connections. A connection that another node took stays that node's, even if the node is dead.
// A connection that is unbound at this moment stays unbound. Connections that Redis has lost are bound again.
func (b *Bus) renewSome(ctx, bounded context.Context, due []string) {
	since := make(map[string]time.Time, len(due))
	for _, connection := range due {
		since[connection] = b.bindings.since(connection)
	}
	var lost []string
	b.bindAll(ctx, bounded, due, func(connection string, p *rpcscript.BindParams) {
		if !since[connection].IsZero() {
			p.From, p.Keep = lua.Some(b.Node()), boundFor
		}
	}, func(connection string, r rpcscript.BindResult) {
		at := since[connection]
		switch {
		case at.IsZero() || !b.bindings.since(connection).Equal(at): // the reply is of the past
		case r.Bound:
			b.bindings.renewed(connection, at)
		case r.Owner == "":
			lost = append(lost, connection)
		case b.bindings.lose(connection, at):
			b.report(ctx, taken(connection, r.Owner))
		}
		b.bindings.agreed(connection)
	})
	if len(lost) > 0 {
		b.bindAnew(ctx, bounded, lost, since)
	}
}

// bindAnew binds connections that Redis has lost. It unbinds a connection again that was unbound meanwhile, because the
// server may have bound it after that. It does not wait for a heartbeat.
func (b *Bus) bindAnew(ctx, bounded context.Context, lost []string, since map[string]time.Time) {
	b.bindAll(ctx, bounded, lost, func(connection string, p *rpcscript.BindParams) {
		p.Keep = boundFor
	}, func(connection string, r rpcscript.BindResult) {
		var err error
		switch {
		case !r.Bound && b.bindings.lose(connection, since[connection]):
			err = taken(connection, r.Owner)
		case r.Bound && !b.bindings.renewed(connection, since[connection]):
			_, err = b.unbind(bounded, connection)
		}
		b.report(ctx, err)
	})
}

// bindAll asks the server about the connections in one pipeline, for each with its own request. take gets the replies.
func (b *Bus) bindAll(ctx, bounded context.Context, connections []string,
	ask func(connection string, p *rpcscript.BindParams), take func(connection string, r rpcscript.BindResult)) {
	batch := lua.NewBatch(b.client)
	futures := make([]*lua.Future[rpcscript.BindResult], len(connections))
	for i, connection := range connections {
		p := rpcscript.BindParams{Binding: b.keys.Connection(connection), Nodes: b.keys.Nodes, Node: b.Node()}
		ask(connection, &p)
		futures[i] = rpcscript.BindIn(batch, p)
	}
	if err := batch.Exec(bounded); err != nil {
		b.report(ctx, fmt.Errorf("luatomic: renew connections of bus %q: %w", b.name, err))
	}
	for i, connection := range connections {
		r, err := futures[i].Get()
		if futures[i].Resent() || errors.Is(err, lua.ErrOutcomeUnknown) {
			b.bindings.doubt(connection)
		}
		if err == nil {
			take(connection, r)
		}
	}
}
