package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/lua"
)

// directory is what this caller knows about the nodes: which nodes serve a method, and how busy each one is. It may be
// wrong: the script that gives a request to a node checks that the node is alive, and the node refuses what it cannot
// take.
type directory struct {
	mu      sync.Mutex
	methods map[string]*listing
	peers   map[string]*peer
}

// listing has the nodes of one method as they were read.
type listing struct {
	peers   []*peer
	asked   time.Time // when the first page of the list was asked for
	read    time.Time
	reading bool
}

// peer is one node as this caller knows it. Its fields are guarded by directory.mu.
type peer struct {
	name     string
	load     int // how busy it said to be, in thousandths
	inFlight int // calls of this caller
}

const (
	// maxOthers is how many candidates a request has besides the first one.
	maxOthers = 3
	// fullLoad is the load of a node that refused a call because all its handlers were busy.
	fullLoad = 1000
	// ownLoad is how much one call in flight counts, in thousandths.
	ownLoad = 10
)

func (d *directory) init() {
	d.methods, d.peers = make(map[string]*listing), make(map[string]*peer)
}

// cost is what the choice compares.
func (p *peer) cost() int { return p.load + ownLoad*p.inFlight }

// choose returns a node for a call and further candidates. It returns none if all known nodes were tried. It picks two
// nodes at random and takes the one with the lower cost. For a call that a node has refused, it compares all nodes.
func (d *directory) choose(method string, tried []string) (node string, others []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.methods[method]
	if l == nil || len(l.peers) == 0 {
		return "", nil
	}
	left := l.peers
	if len(tried) > 0 {
		left = l.without(tried)
		slices.SortFunc(left, func(a, b *peer) int { return a.cost() - b.cost() })
		return firstOf(left)
	}
	at := rand.IntN(len(left))
	first := left[at]
	if len(left) == 1 {
		return first.name, nil
	}
	second := left[(at+1+rand.IntN(len(left)-1))%len(left)]
	if second.cost() < first.cost() {
		first, second = second, first
	}
	others = append(others, second.name)
	for i := 0; i < len(left) && len(others) < maxOthers; i++ {
		if p := left[(at+i)%len(left)]; p != first && p != second {
			others = append(others, p.name)
		}
	}
	return first.name, others
}

// byAffinity returns the node that a key belongs to, and the nodes that follow it. When a node comes or goes, only its
// own keys change their node.
func (d *directory) byAffinity(method, key string, tried []string) (node string, others []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.methods[method]
	if l == nil {
		return "", nil
	}
	left := l.without(tried)
	rank := make(map[*peer]uint64, len(left))
	for _, p := range left {
		rank[p] = rankOf(key, p.name)
	}
	slices.SortFunc(left, func(a, b *peer) int {
		return cmp.Or(cmp.Compare(rank[b], rank[a]), strings.Compare(a.name, b.name))
	})
	return firstOf(left)
}

// without returns the other nodes, in a slice of its own.
func (l *listing) without(names []string) []*peer {
	return slices.DeleteFunc(slices.Clone(l.peers), func(p *peer) bool { return slices.Contains(names, p.name) })
}

// firstOf returns the first of these nodes, and the nodes after it.
func firstOf(left []*peer) (node string, others []string) {
	for _, p := range left[:min(len(left), 1+maxOthers)] {
		others = append(others, p.name)
	}
	if len(others) == 0 {
		return "", nil
	}
	return others[0], others[1:]
}

// rankOf mixes a key and a name: FNV-1a with a final mix, the same in every process.
func rankOf(key, name string) uint64 {
	h := uint64(14695981039346656037)
	for _, s := range [...]string{key, "\x00", name} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	return h ^ h>>33
}

// countAt counts a call as in flight at a node, and at no node once the call is over. It does both in one step, because
// the search for a node may still be under way when the call ends.
func (b *Bus) countAt(w *waiter, node string) {
	d := &b.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	if node != "" && b.pending.isOver(w) {
		return
	}
	if w.counted != nil {
		w.counted.inFlight--
	}
	if w.counted = d.peers[node]; w.counted != nil {
		w.counted.inFlight++
	}
}

// heard records the load that an answer has: one more than the thousandths.
func (d *directory) heard(node string, load uint64) {
	if load == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.peers[node]; p != nil {
		p.load = int(min(load-1, fullLoad))
	}
}

// drop forgets that a node serves a method, until the nodes are read again.
func (d *directory) drop(method string, nodes ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.methods[method]; l != nil {
		l.peers = l.without(nodes)
		if len(l.peers) == 0 {
			delete(d.methods, method)
		}
	}
}

// forget makes later calls read all nodes again.
func (d *directory) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.methods)
}

// due reports whether the nodes of a method are to be read again, by the caller that asks.
func (d *directory) due(method string, age time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.methods[method]
	if l == nil || l.reading || time.Since(l.read) < age {
		return false
	}
	l.reading = true
	return true
}

// install replaces the nodes of a method by the rows that can be reached, unless the present list was asked for later
// than the rows.
func (d *directory) install(method string, asked time.Time, rows []rpcscript.FindRow) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.methods[method]; l != nil && l.asked.After(asked) {
		return
	}
	l := &listing{asked: asked, read: time.Now()}
	for _, r := range rows {
		if r.State != rpcscript.FindStateAlive {
			continue
		}
		p := d.peers[r.Node]
		if p == nil {
			p = &peer{name: r.Node}
			d.peers[r.Node] = p
		}
		p.load = int(r.Load)
		l.peers = append(l.peers, p)
	}
	d.methods[method] = l
	if len(l.peers) == 0 { // a name that no node serves
		delete(d.methods, method)
	}
	d.prune()
}

// listedFor is how long the nodes of a method that is not called are kept.
const listedFor = 10 * time.Minute

// prune forgets methods that are not called any more, and nodes that serve no known method and have no call.
func (d *directory) prune() {
	listed := 0
	for name, l := range d.methods {
		if time.Since(l.read) > listedFor {
			delete(d.methods, name)
		}
		listed += len(l.peers)
	}
	if len(d.peers) <= 2*listed+64 {
		return
	}
	keep := make(map[*peer]bool, listed)
	for _, l := range d.methods {
		for _, p := range l.peers {
			keep[p] = true
		}
	}
	for name, p := range d.peers {
		if !keep[p] && p.inFlight == 0 {
			delete(d.peers, name)
		}
	}
}

// pageSize is how many nodes one script lists.
const pageSize = 500

// find reads the nodes of a method from the server, 500 in a round trip, and notes them. The client is for the first of
// these round trips.
func (b *Bus) find(ctx context.Context, client lua.Client, method string) ([]rpcscript.FindRow, error) {
	var all []rpcscript.FindRow
	after, asked := lua.Opt[string]{}, time.Now()
	for {
		rows, err := rpcscript.Find(ctx, client, rpcscript.FindParams{
			Nodes: b.keys.Nodes, Methods: b.keys.Methods, Method: method, After: after,
			Caller: b.Node(), Outbox: b.keys.Outbox, Shard: b.shard,
		})
		if err != nil {
			return nil, notCalled(err)
		}
		all = append(all, rows...)
		if len(rows) < pageSize {
			break
		}
		after, client = lua.Some(rows[len(rows)-1].Node), b.client
	}
	b.directory.install(method, asked, all)
	return all, nil
}

// notCalled is the error of a script that only prepares a call: whatever became of the script, no handler runs.
func notCalled(err error) error {
	var failed *lua.Error
	if !errors.As(err, &failed) {
		return err
	}
	e := *failed
	e.Outcome = lua.ErrNotExecuted
	return &e
}

// refresh reads the nodes of a method again, in the background, if they were read some time ago.
func (b *Bus) refresh(method string) {
	if !b.directory.due(method, b.opts.Lease/3) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), b.opts.Lease)
		defer cancel()
		if _, err := b.find(ctx, b.client, method); err != nil {
			b.report(ctx, fmt.Errorf("luatomic: find nodes of %q on bus %q: %w", method, b.name, err))
			b.directory.failed(method)
		}
	}()
}

// failed lets a later call read the nodes of a method again.
func (d *directory) failed(method string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.methods[method]; l != nil {
		l.reading, l.read = false, time.Now()
	}
}

// reasonOf says why no node of the rows can take a call.
func reasonOf(rows []rpcscript.FindRow) rpcscript.DecideOutcome {
	reason := rpcscript.DecideOutcome(0)
	for _, r := range rows {
		switch r.State {
		case rpcscript.FindStateUnreachable:
			return rpcscript.DecideOutcomeNoSubscriber
		case rpcscript.FindStateDead:
			reason = rpcscript.DecideOutcomeNoLease
		}
	}
	return reason
}
