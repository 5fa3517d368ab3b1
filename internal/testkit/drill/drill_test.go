package main

import (
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/drill/history"
)

var (
	drillSeed       = flag.Uint64("drill.seed", 0, "seed of TestDrill; 0 for a new one")
	drillOperations = flag.Int("drill.operations", 0, "operations of TestDrill; 0: 300, in the long form 1 000 000")
	drillFaults     = flag.Int("drill.faults", 0, "least number of faults; 0: 14, in the long form 200")
	drillTime       = flag.Duration("drill.time", 0, "longest time of the faults; 0: 5 min, in the long form 40 min")
)

// members are the processes of a drill.
var members = []string{"producer", "producer", "consumer", "consumer", "consumer", "taker", "poller", "operator",
	"holder", "holder", "caller", "node", "node", "scheduler", "mover", "mover"}

// Processes of all kinds work on one server, while connections are cut, replies are lost, late or never arrive, scripts
// are forgotten, the server hangs, restarts, has no memory and has its clock stepped, and processes are stopped, killed
// and ended. The histories of all of them show no violation of what is promised.
func TestDrill(t *testing.T) {
	t.Parallel()
	want, faults, most, between := 300, 14, 5*time.Minute, 100*time.Millisecond
	if os.Getenv("LUATOMIC_DRILL") != "" {
		want, faults, most, between = 1_000_000, 200, 40*time.Minute, time.Second
	}
	override(&want, *drillOperations)
	override(&faults, *drillFaults)
	override(&most, *drillTime)
	seed := rand.Uint64()
	override(&seed, *drillSeed)
	t.Logf("-drill.seed=%d", seed)
	f := openField(t, seed, nil, members...)
	done := 0
	for began := time.Now(); (f.operations() < want || done < faults) && time.Since(began) < most; done++ {
		f.wait(2 * between)
		f.fault()
	}
	f.drain()
	all, violations := f.check()
	f.report(all)
	f.require(violations)
	require.GreaterOrEqual(t, f.operations(), want, "too few operations in the time")
	require.GreaterOrEqual(t, done, faults, "too few faults in the time")
}

func override[T comparable](value *T, with T) {
	var zero T
	if with != zero {
		*value = with
	}
}

// report logs the counts of a drill.
func (f *field) report(all []history.Record) {
	counts := make(map[history.Kind]int)
	for _, r := range all {
		counts[r.Kind]++
	}
	f.t.Logf("%d operations, %d records", f.operations(), len(all))
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		f.t.Logf("  %-10s %d", kind, counts[kind])
	}
	f.t.Logf("faults: %v", f.faults)
	f.t.Logf("late writes that the store refused: %d", history.LateWrites(all))
}

// require fails the test where there are violations, and says how to go on.
func (f *field) require(found []history.Violation) {
	byRule := make(map[history.Rule]int)
	for i, v := range found {
		if byRule[v.Rule]++; i < 20 {
			f.t.Log(v)
		}
	}
	require.Empty(f.t, byRule, "go run ./internal/testkit/drill -shrink small %s", f.history())
}
