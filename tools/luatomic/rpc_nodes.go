package main

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/rpc"
)

type nodeResult struct {
	Node        label   `json:"node"`
	Methods     []label `json:"methods"`
	Running     int64   `json:"running"`
	Concurrency int     `json:"concurrency"`
	Handled     int64   `json:"handled"`
	Calls       int64   `json:"calls"`
	LeaseMS     int64   `json:"lease_ms"`
	Speaks      int     `json:"speaks"`

	Described map[string]rpc.MethodInfo `json:"described,omitempty"`
}

func rpcNodesCommand() *command {
	f, hero := &busFlags{}, &heroFlags{}
	return &command{
		name: "rpc nodes", args: "[flags]",
		about: "List the nodes of a bus.",
		detail: `Only reads. A node is a process that serves, calls, or both; one that dies disappears
when its lease is over. Its figures are as old as its last heartbeat, a third of the lease at most.
ActionHero's nodes keep no list: in that dialect it prints how many are subscribed to the channel,
at the server asked.`,
		output: `{"node","methods","running","concurrency","handled","calls","lease_ms","speaks","described"?} for each
  node, by name, on a terminal a table; methods: the first hundred; running: handlers, of concurrency;
  lease_ms: how long it still counts as alive; speaks: the version of its frames; described: {"description",
  "version"} of each method that has them; of ActionHero {"channel","subscribers"}`,
		example: `luatomic rpc nodes --bus orders`,
		flags: func(fs *flag.FlagSet) {
			f.add(fs)
			hero.add(fs)
		},
		check: func(s *session) error {
			if err := hero.check(s, map[string]bool{"bus": f.name != defaultBus}); err != nil {
				return err
			}
			return f.checkAlone(s)
		},
		run: func(s *session) error {
			if hero.dialect != "" {
				return hero.countNodes(s)
			}
			return f.withNodes(s, &interval{}, func(nodes []rpc.Node) error { return listNodes(s, nodes) })
		},
	}
}

func listNodes(s *session, nodes []rpc.Node) error {
	table := s.rows("NODE", "METHODS", "RUNNING", "HANDLED", "CALLS", "LEASE")
	for _, n := range nodes {
		out := nodeResult{
			label(n.Node), show.Names(n.Methods), n.Running, n.Concurrency, n.Handled, n.Calls,
			n.Lease.Milliseconds(), n.Speaks, show.Keys(n.Described, show.Label),
		}
		names := make([]string, len(n.Methods))
		for i, m := range n.Methods {
			names[i] = strings.TrimSuffix(show.Label(m)+" "+n.Described[m].Version, " ")
		}
		running := fmt.Sprintf("%d of %d", n.Running, n.Concurrency)
		if err := table.add(out, out.Node, strings.Join(names, ", "), running, n.Handled, n.Calls,
			rounded(n.Lease)); err != nil {
			return err
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	return table.end()
}

// checkAlone is for the commands that take no arguments.
func (f *busFlags) checkAlone(s *session) error {
	if len(s.args) > 0 {
		return usagef("this command takes no arguments, but there are %q; leave them out; the bus is named with --bus",
			s.args)
	}
	return f.check()
}

// withNodes calls list with the live nodes, once or every watch.
func (f *busFlags) withNodes(s *session, watch *interval, list func([]rpc.Node) error) error {
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	bus, err := f.open(s, client, rpc.Options{})
	if err != nil {
		return err
	}
	empty := false // and stderr has it
	return s.again(watch, func() error {
		nodes, err := bus.Nodes(s.signals.stop)
		switch {
		case s.signals.stop.Err() != nil:
			return errInterrupted
		case err != nil:
			return err
		case len(nodes) == 0 && !empty:
			s.note("luatomic: bus %q has no node; check --bus and --prefix, or start a node with luatomic rpc serve",
				f.name)
		}
		empty = len(nodes) == 0
		slices.SortFunc(nodes, func(a, b rpc.Node) int { return cmp.Compare(a.Node, b.Node) })
		return list(nodes)
	})
}

type topResult struct {
	Method  label    `json:"method"`
	Node    label    `json:"node"`
	Running int64    `json:"running"`
	Handled int64    `json:"handled"`
	Failed  int64    `json:"failed"`
	Rate    *float64 `json:"per_second"`
	MeanMS  *float64 `json:"mean_ms"`
	Version string   `json:"version,omitempty"`
}

// work names a method at a node.
type work struct{ node, method string }

// seen is what a node had done when it was last read.
type seen struct {
	rpc.MethodCounts
	at time.Time
}

func rpcTopCommand() *command {
	f, watch := &busFlags{}, &interval{}
	last := make(map[work]seen)
	return &command{
		name: "rpc top", args: "[flags]",
		about: "Show which methods run where.",
		detail: `Only reads. The figures are as old as the node's last heartbeat, a third of its lease
at most, so an interval below 1 s prints the same again.`,
		output: `{"method","node","running","handled","failed","per_second","mean_ms","version"?} for each method of each
  node, the first hundred, on a terminal a table; the busiest first; handled and failed: since the node
  began; per_second: since the print before, null at the first; mean_ms: how long a handler took, since the
  print before, null where none ended; version: of the method, where it has one`,
		example: `luatomic rpc top --watch`,
		flags: func(fs *flag.FlagSet) {
			f.add(fs)
			fs.Var(watch, "watch", "print again every `INTERVAL`, 1s if left out, until Ctrl-C")
		},
		check: func(s *session) error {
			if err := watch.check(); err != nil {
				return err
			}
			return f.checkAlone(s)
		},
		run: func(s *session) error {
			return f.withNodes(s, watch, func(nodes []rpc.Node) error {
				return f.listTop(s, len(nodes), topRows(nodes, last, time.Now()))
			})
		},
	}
}

// listTop prints the methods, or on stderr that no node serves any.
func (f *busFlags) listTop(s *session, nodes int, methods []topResult) error {
	if len(methods) == 0 {
		if nodes > 0 {
			s.note("luatomic: the %d nodes of bus %q serve no method; they only call", nodes, f.name)
		}
		return nil
	}
	table := s.rows("METHOD", "NODE", "RUNNING", "HANDLED", "FAILED", "PER SECOND", "MEAN MS", "VERSION")
	for _, m := range methods {
		err := table.add(m, m.Method, m.Node, m.Running, m.Handled, m.Failed, orNone(m.Rate),
			orNone(m.MeanMS), m.Version)
		if err != nil {
			return err
		}
	}
	return table.end()
}

// topRows compares the nodes with what was read last, and keeps what is read now alone.
func topRows(nodes []rpc.Node, last map[work]seen, now time.Time) []topResult {
	var rows []topResult
	for _, n := range nodes {
		for _, method := range methodsOf(n) {
			counts := n.Counts[method]
			row := topResult{Method: label(method), Node: label(n.Node), Running: counts.Running,
				Handled: counts.Handled, Failed: counts.Failed, Version: n.Described[method].Version}
			before, again := last[work{n.Node, method}]
			done := counts.Handled - before.Handled
			if again {
				rate := round(float64(done) / now.Sub(before.at).Seconds())
				row.Rate = &rate
			}
			if done > 0 {
				mean := round(float64((counts.Took - before.Took).Microseconds()) / 1000 / float64(done))
				row.MeanMS = &mean
			}
			last[work{n.Node, method}] = seen{counts, now}
			rows = append(rows, row)
		}
	}
	maps.DeleteFunc(last, func(_ work, s seen) bool { return s.at != now }) // their nodes have ended
	slices.SortFunc(rows, func(a, b topResult) int {
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(b.Handled, a.Handled),
			cmp.Compare(a.Method, b.Method), cmp.Compare(a.Node, b.Node))
	})
	return rows
}

// methodsOf are the methods that the node serves, and those that it has served.
func methodsOf(n rpc.Node) []string {
	all := slices.AppendSeq(slices.Clone(n.Methods), maps.Keys(n.Counts))
	slices.Sort(all)
	return slices.Compact(all)
}

// round keeps one digit after the point.
func round(f float64) float64 { return float64(int64(f*10+0.5)) / 10 }
