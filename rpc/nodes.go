package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/internal/wire"
)

// Node is what a node reports about itself with each heartbeat. In JSON, a byte of a name that is not UTF-8 is written
// as `\xff`, and the backslash of a text that looks like that as `\x5c`.
type Node struct {
	// Node is its unique name, for CallOptions.Node.
	Node string `json:"node"`
	// Lease is how long the node still counts as alive, by the server's clock.
	Lease time.Duration `json:"-"`
	// Methods are the methods that the node serves, the first hundred by name.
	Methods []string `json:"methods"`
	// Described are what ServeOptions say about them, at most 8 KiB.
	Described map[string]MethodInfo `json:"described,omitempty"`
	// Speaks is the greatest version of frames that the node reads.
	Speaks int `json:"speaks"`
	// Counts are the counts of the methods that the node has run.
	Counts map[string]MethodCounts `json:"counts,omitempty"`
	// Running is how many of the node's handlers run now, of at most Concurrency.
	Running     int64 `json:"running"`
	Concurrency int   `json:"concurrency"`
	// Handled counts the requests that the node has handled, Calls the calls that it has made.
	Handled int64 `json:"handled"`
	Calls   int64 `json:"calls"`
}

// MethodInfo is what a node says about one of its methods.
type MethodInfo struct {
	Description string `json:"description,omitempty"`
	Version     string `json:"version,omitempty"`
}

// MarshalJSON writes names as the comment of Node says.
func (n Node) MarshalJSON() ([]byte, error) {
	type plain Node
	return json.Marshal(plain(n.renamed(show.Label)))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (n *Node) UnmarshalJSON(text []byte) error {
	type plain Node
	err := json.Unmarshal(text, (*plain)(n))
	*n = n.renamed(show.Named)
	return err
}

// renamed is the node with its names in another form.
func (n Node) renamed(as func(string) string) Node {
	n.Node, n.Methods = as(n.Node), slices.Clone(n.Methods)
	for i, name := range n.Methods {
		n.Methods[i] = as(name)
	}
	n.Described, n.Counts = show.Keys(n.Described, as), show.Keys(n.Counts, as)
	return n
}

// describe returns the text that Nodes reads.
func (b *Bus) describe() string {
	node := Node{
		Node: b.Node(), Speaks: wire.Version,
		Running: b.serving.running.Load(), Concurrency: b.opts.Concurrency,
		Handled: b.counts.handled.Load(), Calls: b.counts.calls.Load(),
	}
	b.serving.describe(&node)
	text, err := json.Marshal(node)
	if err != nil {
		return "{}" // it has no field that could fail
	}
	return string(text)
}

// describe sets the first hundred methods, their descriptions, and the counts of those that were called.
func (s *serving) describe(node *Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	methods := s.namesLocked()
	node.Methods = methods[:min(len(methods), 100)]
	node.Counts, node.Described = make(map[string]MethodCounts), make(map[string]MethodInfo)
	left := 8 << 10
	for _, name := range node.Methods {
		m := s.methods[name]
		if c := m.counts.read(); c.Running+c.Handled > 0 {
			node.Counts[name] = c
		}
		info := MethodInfo{Description: m.opts.Description, Version: m.opts.Version}
		if n := len(name) + len(info.Description) + len(info.Version); info != (MethodInfo{}) && n <= left {
			node.Described[name], left = info, left-n
		}
	}
}

// Nodes lists the live nodes of the bus, at most a thousand, including those that only call. A script reads their
// leases and reports by the server's clock, about 1 MB of reports in a round trip. It needs no Run.
func (b *Bus) Nodes(ctx context.Context) ([]Node, error) {
	out := []Node{}
	for p := (rpcscript.NodesParams{Nodes: b.keys.Nodes, About: b.keys.About}); ; {
		rows, err := rpcscript.Nodes(ctx, b.client, p)
		if err != nil {
			return nil, fmt.Errorf("luatomic: list nodes of bus %q: %w", b.name, err)
		}
		p.Names = nil
		for _, r := range rows {
			if r.Later {
				p.Names = append(p.Names, r.Node)
			} else if r.Left > 0 {
				out = append(out, reported(r))
			}
		}
		if len(p.Names) == 0 {
			return out, nil
		}
	}
}

// reported reads the report of a node. That of another version leaves all but the name and the lease empty.
func reported(r rpcscript.NodesRow) (node Node) {
	_ = json.Unmarshal([]byte(r.Text), &node)
	node.Node, node.Lease = r.Node, r.Left
	return node
}
