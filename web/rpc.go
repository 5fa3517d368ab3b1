package web

import (
	"cmp"
	"context"
	"fmt"
	"hash"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/rpc"
)

type rpcData struct {
	Now   time.Time `json:"now"`
	Buses []busRow  `json:"buses"`
	// Partial says that the search for buses ended before it had seen all keys.
	Partial bool `json:"partial"`
}

type busRow struct {
	Bus     show.Name   `json:"bus"`
	Nodes   []nodeRow   `json:"nodes"`
	Methods []methodRow `json:"methods"`
	Fault   *fault      `json:"fault,omitempty"`
}

// nodeRow is a live node.
type nodeRow struct {
	Node        show.Name `json:"node"`
	Methods     int       `json:"methods"`
	Running     int64     `json:"running"`
	Concurrency int       `json:"concurrency"`
	Handled     int64     `json:"handled"`
	Calls       int64     `json:"calls"`
	LeaseMS     int64     `json:"lease_ms"`
}

// methodRow is a method at all nodes that serve it.
type methodRow struct {
	Method      show.Name `json:"method"`
	Description string    `json:"description,omitempty"`
	Versions    []string  `json:"versions,omitempty"`
	Nodes       int       `json:"nodes"`
	Running     int64     `json:"running"`
	Handled     int64     `json:"handled"`
	Failed      int64     `json:"failed"`
	// Rate is how many calls end per second, null for some seconds after a node came or left. MeanMS is how long a
	// handler took since its node began.
	Rate   speed   `json:"per_second"`
	MeanMS float64 `json:"mean_ms"`
	took   time.Duration
	from   hash.Hash64 // of its nodes, in their order
}

// busesShown are those of one page.
const busesShown = 50

func (h *handler) rpc(ctx context.Context, q *request) (answer, error) {
	data := rpcData{Now: time.Now()}
	names := []string{q.of("name")}
	if names[0] == "" {
		var err error
		if names, data.Partial, err = h.findBuses(ctx); err != nil {
			return answer{}, err
		}
	}
	data.Buses = make([]busRow, len(names))
	within, cancel := forRows(ctx)
	defer cancel()
	faults := h.faultsOf(servers.EachBus(within, h.client, names, func(ctx context.Context, i int) (err error) {
		data.Buses[i], err = h.readBus(ctx, names[i], q.role)
		return err
	}))
	if len(names) == 1 && faults[0] != nil {
		return answer{}, faults[0]
	}
	for i, name := range names {
		data.Buses[i].Bus, data.Buses[i].Fault = show.Name(name), faults[i]
	}
	return answer{page: "rpc", title: "Calls", data: data}, noneServed(faults)
}

// findBuses searches for the lists of nodes, within ScanFor.
func (h *handler) findBuses(ctx context.Context) (names []string, partial bool, err error) {
	within, cancel := context.WithTimeout(ctx, ScanFor)
	defer cancel()
	names, err = servers.Buses(within, h.client, h.opts.Prefix)
	if err != nil {
		partial, err = h.searchEnded(ctx, within, err, len(names) > 0)
	}
	if len(names) > busesShown {
		names, partial = names[:busesShown], true
	}
	return names, partial, err
}

func (h *handler) readBus(ctx context.Context, name string, role Role) (row busRow, err error) {
	bus, err := rpc.New(h.client, name, &rpc.Options{Prefix: h.opts.Prefix})
	if err != nil {
		return row, err
	}
	live, err := bus.Nodes(ctx)
	if err != nil {
		return row, err
	}
	slices.SortFunc(live, func(a, b rpc.Node) int { return strings.Compare(a.Node, b.Node) })
	for _, n := range live {
		row.Nodes = append(row.Nodes, nodeRow{show.Name(n.Node), len(n.Methods), n.Running, n.Concurrency,
			n.Handled, n.Calls, n.Lease.Milliseconds()})
	}
	row.Methods = h.methodsOf(name, live, role)
	return row, nil
}

// methodsOf adds up what the nodes report of each method.
func (h *handler) methodsOf(bus string, live []rpc.Node, role Role) []methodRow {
	byName := make(map[string]*methodRow)
	for _, n := range live {
		for _, name := range n.Methods {
			m := byName[name]
			if m == nil {
				m = &methodRow{Method: show.Name(name), from: fnv.New64a()}
				byName[name] = m
			}
			fmt.Fprintln(m.from, n.Node)
			m.add(n.Counts[name], n.Described[name], role)
		}
	}
	all := make([]methodRow, 0, len(byName))
	for _, m := range byName {
		if m.Handled > 0 {
			m.MeanMS = float64(m.took.Microseconds()/m.Handled) / 1000
		}
		// Other nodes are another counter: one that comes back brings all that it has ever handled.
		m.Rate = h.rate(fmt.Sprintf("rpc %s\n%s\n%x", bus, m.Method, m.from.Sum(nil)), m.Handled)
		slices.Sort(m.Versions)
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b methodRow) int {
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(a.Method, b.Method))
	})
	return all
}

func (m *methodRow) add(c rpc.MethodCounts, about rpc.MethodInfo, role Role) {
	m.Nodes++
	m.Running, m.Handled, m.Failed, m.took = m.Running+c.Running, m.Handled+c.Handled, m.Failed+c.Failed, m.took+c.Took
	if !role.Has(Texts) {
		return
	}
	m.Description = cmp.Or(m.Description, about.Description)
	if about.Version != "" && !slices.Contains(m.Versions, about.Version) {
		m.Versions = append(m.Versions, about.Version)
	}
}
