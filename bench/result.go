package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// result is one run as it is stored: every sample, and what it was taken on.
type result struct {
	Date    time.Time         `json:"date"`
	Machine machine           `json:"machine"`
	Server  string            `json:"server"`
	Peers   map[string]string `json:"peers"`  // module or program: version
	Absent  map[string]string `json:"absent"` // peer: why it was not measured
	Options options           `json:"options"`
	Rows    []measured        `json:"rows"`
}

// options are the settings of a run.
type options struct {
	Quick  bool          `json:"quick"`
	Rounds int           `json:"rounds"`
	Slot   time.Duration `json:"slot,omitempty"`  // of an entrant in a round; 0: the entrants did not alternate
	Whole  int           `json:"whole,omitempty"` // rounds of rows whose entrants do not alternate
	Rows   string        `json:"rows,omitempty"`
	Span   time.Duration `json:"span"`   // of rows whose entrants do not alternate
	Pinned bool          `json:"pinned"` // one-caller rows: server and client had a core each
}

// trial says why a result is not for publish, "" where it is.
func (o options) trial() string {
	switch {
	case o.Quick:
		return "of a quick run"
	case o.Rows != "":
		return fmt.Sprintf("of the rows %q alone", o.Rows)
	}
	return ""
}

// measured is a row with the samples of each entrant.
type measured struct {
	Name     string     `json:"name"`
	What     string     `json:"what"`
	Main     string     `json:"main"`            // the metric that the row is about
	Apart    string     `json:"apart,omitempty"` // why its entrants did not alternate
	Entrants []entrants `json:"entrants"`
}

type entrants struct {
	Name    string               `json:"name"`
	Kind    kind                 `json:"kind"`
	Note    string               `json:"note,omitempty"`
	Metrics map[string][]float64 `json:"metrics"` // a sample a round
}

// kind is what an entrant is to the others of its row.
type kind string

const (
	ours kind = "luatomic"
	raw  kind = "raw"  // the plain commands for the same data, with no promise
	peer kind = "peer" // another library for the same purpose
)

// metrics are the figures of one run of an entrant, by the names of [units].
type metrics map[string]float64

// units are the metrics: what they count, and whether more of it is better.
var units = map[string]struct {
	label string
	more  bool
}{
	"per_s":     {"/s", true},
	"p50_us":    {"p50 us", false},
	"p99_us":    {"p99 us", false},
	"max_us":    {"max us", false},
	"server_us": {"server us", false},
	"lua_us":    {"Lua us", false},
	"commands":  {"commands", false},
	"allocs":    {"allocs", false},
	"bytes":     {"bytes", false},
	"calls_s":   {"commands/s", false},
}

// rounds are how many samples the row has of each entrant.
func (m *measured) rounds() int {
	n := 0
	for _, e := range m.Entrants {
		n = max(n, len(e.Metrics[m.Main]))
	}
	return n
}

func (m *measured) entrant(name string) *entrants {
	for i := range m.Entrants {
		if m.Entrants[i].Name == name {
			return &m.Entrants[i]
		}
	}
	return nil
}

func (r *result) row(name string) *measured {
	for i := range r.Rows {
		if r.Rows[i].Name == name {
			return &r.Rows[i]
		}
	}
	return nil
}

func (r *result) save(file string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func load(file string) (*result, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := new(result)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s is no result file: %w", file, err)
	}
	return r, nil
}
