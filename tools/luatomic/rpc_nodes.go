package main

import (
	"flag"
	"time"

	"github.com/luatomic/luatomic"
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
	f := &busFlags{}
	return &command{
		name: "rpc nodes", args: "[flags]",
		about: "List the live nodes of a bus.",
		detail: `Only reads. Nodes report a third of their lease apart, so the numbers are up to a second old. A node without methods
only calls.`,
		output: `{"node","methods","running","concurrency","handled","calls","lease_ms"} for each node; running: its handlers, of
  concurrency; handled and calls: since it started; lease_ms: how long it still counts as alive`,
		example: `luatomic rpc nodes --bus orders`,
		flags:   f.add,
		check:   func(s *session) error { return f.checkNone(s) },
		run: func(s *session) error {
			bus, closed, err := f.open(s, luatomic.BusOptions{})
			if err != nil {
				return err
			}
			defer closed()
			nodes, err := bus.Nodes(s.signals.stop)
			if err != nil {
				return err
			}
			for _, n := range nodes {
				methods := n.Methods
				if methods == nil {
					methods = []string{}
				}
				if err := s.emit(nodeResult{n.Node, methods, n.Running, n.Concurrency, n.Handled, n.Calls, n.Lease.Milliseconds()}); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (f *busFlags) checkNone(s *session) error {
	if len(s.args) > 0 {
		return usagef("it takes no arguments, but there are %q; name the bus with --bus", s.args)
	}
	return f.check()
}

type topResult struct {
	Node        string  `json:"node"`
	Running     int64   `json:"running"`
	Concurrency int     `json:"concurrency"`
	HandledPerS float64 `json:"handled_per_s"`
	CallsPerS   float64 `json:"calls_per_s"`
}

func rpcTopCommand() *command {
	f, watch := &busFlags{}, &interval{on: true, every: 2 * time.Second}
	rounds := 0
	return &command{
		name: "rpc top", args: "[flags]",
		about:   "Show how busy the nodes of a bus are, again and again.",
		detail:  `Only reads. Rates are those between two looks. Goes on until Ctrl-C, or for --rounds looks.`,
		output:  `{"node","running","concurrency","handled_per_s","calls_per_s"} for each node at each look`,
		example: `luatomic rpc top --watch 5s`,
		flags: func(fs *flag.FlagSet) {
			f.add(fs)
			fs.Var(watch, "watch", "look again every `INTERVAL`")
			fs.IntVar(&rounds, "rounds", 0, "end after `N` looks; 0: never")
		},
		check: func(s *session) error {
			if rounds < 0 {
				return usagef("--rounds %d is out of range; at least 0", rounds)
			}
			if err := atLeast("watch", watch.every, 100*time.Millisecond); err != nil {
				return err
			}
			return f.checkNone(s)
		},
		run: func(s *session) error { return f.top(s, watch.every, rounds) },
	}
}

func (f *busFlags) top(s *session, every time.Duration, rounds int) error {
	bus, closed, err := f.open(s, luatomic.BusOptions{})
	if err != nil {
		return err
	}
	defer closed()
	before, at := map[string]luatomic.NodeInfo{}, time.Now()
	for i := 0; ; i++ {
		nodes, err := bus.Nodes(s.signals.stop)
		if err != nil {
			return err
		}
		now, seen := time.Now(), make(map[string]luatomic.NodeInfo, len(nodes))
		for _, n := range nodes {
			seen[n.Node] = n
			if last, ok := before[n.Node]; ok {
				seconds := now.Sub(at).Seconds()
				out := topResult{n.Node, n.Running, n.Concurrency, float64(n.Handled-last.Handled) / seconds, float64(n.Calls-last.Calls) / seconds}
				if err := s.emit(out); err != nil {
					return err
				}
			}
		}
		if before, at = seen, now; rounds > 0 && i == rounds {
			return nil
		}
		select {
		case <-s.signals.stop.Done():
			return errInterrupted
		case <-time.After(every):
		}
	}
}
