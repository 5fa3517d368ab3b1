package main

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuartilesLieBetweenTheSamplesAroundThem(t *testing.T) {
	require.Equal(t, quartiles{2, 3, 4}, quartilesOf([]float64{5, 1, 4, 2, 3}))
	require.Equal(t, quartiles{1.25, 1.5, 1.75}, quartilesOf([]float64{2, 1}))
	require.Equal(t, quartiles{7, 7, 7}, quartilesOf([]float64{7}))
	require.True(t, math.IsNaN(quartilesOf(nil).median), "no samples, no number")
}

// One of many rounds may be as bad as it likes. Of few, nobody knows which one was bad.
func TestASpreadOfManyRoundsForgetsTheWorst(t *testing.T) {
	require.Zero(t, spreadOf([]float64{5, 5, 5, 5, 5, 5, 5, 5, 1, 900}))
	require.InDelta(t, 2, spreadOf([]float64{4, 5, 14}), 1e-9)
}

// The machine is twice as slow in every other round, for both: the medians are far apart, the ratio is always 2.
func TestTheRatioIsOfTheRoundsAndNotOfTheMedians(t *testing.T) {
	r, c := new(result), contest{row: row{name: "x", main: "per_s"}}
	for _, speed := range []float64{1, 2, 1, 2, 1} {
		r.add(c, entrant{name: "luatomic", kind: ours}, metrics{"per_s": 200 * speed})
	}
	for _, speed := range []float64{1, 2, 1, 2, 2} {
		r.add(c, entrant{name: "raw", kind: raw}, metrics{"per_s": 100 * speed})
	}
	m := &r.Rows[0]
	require.Equal(t, "2.00 [2.00 2.00]", ratio(m, m.entrant("luatomic"), raw))
	require.Equal(t, 5, m.rounds())
}

// In two turns of all entrants, each has each place and each neighbour as often as the others.
func TestTheOrderOfARoundRotates(t *testing.T) {
	for n := 1; n <= 6; n++ {
		places, before := make(map[[2]int]int), make(map[[2]int]int)
		for round := range 2 * n {
			all := order(round, n)
			require.ElementsMatch(t, order(0, n), all)
			for place, i := range all {
				places[[2]int{i, place}]++
				if place > 0 {
					before[[2]int{all[place-1], i}]++
				}
			}
		}
		for at, times := range places {
			require.Equal(t, 2, times, "%d entrants: entrant %d at place %d", n, at[0], at[1])
		}
		for pair, times := range before {
			require.Equal(t, times, before[[2]int{pair[1], pair[0]}], "%d entrants: %v", n, pair)
		}
	}
}

// Every entrant is open before the first round, has a slot in each, and is closed after the last. One that does not
// alternate is opened and closed in each round.
func TestEntrantsAlternateWhileAllOfThemAreOpen(t *testing.T) {
	for apart, want := range map[string]string{
		"": "open a,slot a,open b,slot b,slot a,slot b,slot b,slot a,close a,close b",
		"for a reason": "open a,slot a,close a,open b,slot b,close b," +
			"open b,slot b,close b,open a,slot a,close a",
	} {
		var steps []string
		player := func(name string) entrant {
			return entrant{name: name, open: func(b *bench) (work, error) {
				steps = append(steps, "open "+name)
				b.close(func() { steps = append(steps, "close "+name) })
				return func(time.Duration) (metrics, error) {
					steps = append(steps, "slot "+name)
					return metrics{"per_s": 1}, nil
				}, nil
			}}
		}
		c := contest{row: row{name: "x", main: "per_s", entrants: []entrant{player("a"), player("b")}}, apart: apart}
		b := &bench{ctx: t.Context(), opts: options{Rounds: 2, Whole: 2}, unclean: true}
		added := 0
		require.NoError(t, b.measureRow(c, func(int, entrant, metrics) { added++ }))
		require.Equal(t, 4, added)
		require.Equal(t, want, strings.Join(steps, ","), "apart: %q", apart)
	}
}

func TestAQuickOrPartialResultIsNeitherWrittenNorPublishedAsTheResult(t *testing.T) {
	for _, tc := range []struct {
		options options
		args    []string
		why     string
	}{
		{options{Quick: true}, []string{"-quick"}, "of a quick run"},
		{options{Rows: "^lock"}, []string{"-rows", "^lock"}, `of the rows "^lock" alone`},
	} {
		run := append([]string{"run", "-out", "../bench/result.json"}, tc.args...)
		require.ErrorContains(t, command(t.Context(), run), "a result "+tc.why+" is not published")
		root, trial := t.TempDir(), sample(1)
		trial.Options = tc.options
		require.ErrorContains(t, publish(trial, sample(1), new(instructions), root), tc.why+" is not published")
		left, err := os.ReadDir(root)
		require.NoError(t, err)
		require.Empty(t, left)
	}
	require.ErrorContains(t, command(t.Context(), []string{"run", "-slot", "1s"}), "not within 40 to 200 ms")
}

// A family that does not alternate is one of the rows.
func TestRowsThatDoNotAlternateSayWhy(t *testing.T) {
	all := rows(new(bench), &result{Absent: map[string]string{}, Peers: map[string]string{}})
	for _, family := range []string{"late", "stall", "takeover/dead=0", "idle/lock", "memory/lock"} {
		i := slices.IndexFunc(all, func(c contest) bool { return c.name == family })
		require.GreaterOrEqual(t, i, 0, family)
		require.NotEmpty(t, all[i].apart, family)
	}
	require.False(t, slices.ContainsFunc(all, func(c contest) bool { return c.name == "ping" && c.apart != "" }))
}
