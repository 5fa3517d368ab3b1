package main

import (
	"cmp"
	"flag"
	"slices"
	"time"

	"github.com/luatomic/luatomic/rpc"
)

type nodeResult struct {
	Node        string   `json:"node"`
	Methods     []string `json:"methods"`
	Running     int64    `json:"running"`
	Concurrency int      `json:"concurrency"`
	Handled     int64    `json:"handled"`
	Calls       int64    `json:"calls"`
	LeaseMS     int64    `json:"lease_ms"`
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
		output: `{"node","methods","running","concurrency","handled","calls","lease_ms"} for each node, by name; methods:
  the first hundred; running: handlers, of concurrency; lease_ms: how long it still counts as alive; of
  ActionHero {"channel","subscribers"}`,
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
			return f.withNodes(s, &interval{}, func(nodes []rpc.Node) error {
				for _, n := range nodes {
					out := nodeResult{n.Node, n.Methods, n.Running, n.Concurrency, n.Handled, n.Calls, n.Lease.Milliseconds()}
					if out.Methods == nil {
						out.Methods = []string{}
					}
					if err := s.emit(out); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// checkAlone is for the commands that take no arguments.
func (f *busFlags) checkAlone(s *session) error {
	if len(s.args) > 0 {
		return usagef("it takes no arguments, but there are %q; leave them out; the bus is named with --bus", s.args)
	}
	return f.check()
}

// withNodes calls show with the live nodes, once or every watch.
func (f *busFlags) withNodes(s *session, watch *interval, show func([]rpc.Node) error) error {
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	bus, err := f.open(s, client, rpc.Options{})
	if err != nil {
		return err
	}
	return s.again(watch, func() error {
		nodes, err := bus.Nodes(s.signals.stop)
		switch {
		case s.signals.stop.Err() != nil:
			return errInterrupted
		case err != nil:
			return err
		case len(nodes) == 0:
			s.note("luatomic: bus %q has no node; check --bus and --prefix, or start a node with luatomic rpc serve", f.name)
		}
		slices.SortFunc(nodes, func(a, b rpc.Node) int { return cmp.Compare(a.Node, b.Node) })
		return show(nodes)
	})
}

type topResult struct {
	Method  string   `json:"method"`
	Node    string   `json:"node"`
	Running int64    `json:"running"`
	Handled int64    `json:"handled"`
	Failed  int64    `json:"failed"`
	Rate    *float64 `json:"per_second"`
	MeanMS  *float64 `json:"mean_ms"`
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
		output: `{"method","node","running","handled","failed","per_second","mean_ms"} for each method that was called at
  each node, the busiest first; handled and failed: since the node began; per_second: since the print
  before, null at the first; mean_ms: how long a handler took, since the print before, null where none
  ended`,
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
				for _, row := range topRows(nodes, last, time.Now()) {
					if err := s.emit(row); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// topRows compares the nodes with what was read last, and keeps what is read now.
func topRows(nodes []rpc.Node, last map[work]seen, now time.Time) []topResult {
	var rows []topResult
	for _, n := range nodes {
		for method, counts := range n.Counts {
			row := topResult{Method: method, Node: n.Node, Running: counts.Running, Handled: counts.Handled,
				Failed: counts.Failed}
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
	slices.SortFunc(rows, func(a, b topResult) int {
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(b.Handled, a.Handled),
			cmp.Compare(a.Method, b.Method), cmp.Compare(a.Node, b.Node))
	})
	return rows
}

// round keeps one digit after the point.
func round(f float64) float64 { return float64(int64(f*10+0.5)) / 10 }
