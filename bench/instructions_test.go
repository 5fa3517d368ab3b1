package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
)

func TestInstructionsThatDifferFromTheTableFailUnlessItIsRenewed(t *testing.T) {
	file, every := filepath.Join(t.TempDir(), "instructions.json"), regexp.MustCompile("")
	counts := func(server string, rows map[string]float64) *instructions {
		return &instructions{Server: server, Rows: rows, absent: map[string]string{"p": "no ruby on PATH"}}
	}
	table, err := loadInstructions(file)
	require.ErrorIs(t, err, os.ErrNotExist)
	first := map[string]float64{"script: x": 1000, "script: y": 2000, "luatomic: z x 36": 1000}
	require.NoError(t, table.renew(counts("a", first), every))
	table.Rows["p"] = 5 // of a peer that is absent now
	require.NoError(t, table.save(file))
	table, err = loadInstructions(file)
	require.NoError(t, err)
	for _, tc := range []struct {
		rows map[string]float64
		want string
	}{
		{map[string]float64{"script: x": 1009, "script: y": 1981, "luatomic: z x 36": 1040}, ""},
		{
			map[string]float64{"script: x": 1011, "script: y": 2000, "luatomic: z x 36": 1000},
			"script: x: 1011 instead of 1000, +1.1 %",
		},
		{
			map[string]float64{"script: x": 989, "script: y": 2000, "luatomic: z x 36": 1000},
			"script: x: 989 instead of 1000, -1.1 %",
		},
		{
			map[string]float64{"script: x": 1000, "script: y": 2000, "luatomic: z x 36": 1070},
			"luatomic: z x 36: 1070 instead of 1000",
		},
		{
			map[string]float64{"script: x": 1000, "luatomic: z x 36": 1000},
			"script: y: 2000 in the table, and no such row",
		},
		{
			map[string]float64{"script: x": 1000, "script: y": 2000, "luatomic: z x 36": 1000, "script: w": 1},
			"script: w: 1, and not in the table",
		},
	} {
		var out bytes.Buffer
		err := table.compare(&out, counts("a", tc.rows), every)
		require.Contains(t, out.String(), "p: not counted: no ruby on PATH")
		if tc.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, tc.want)
		require.NotContains(t, err.Error(), "Another build")
	}
	some := regexp.MustCompile(": x$")
	require.NoError(t, table.compare(new(bytes.Buffer), counts("b", map[string]float64{"script: x": 1000}), some),
		"another build, and no change")
	require.ErrorContains(t, table.compare(new(bytes.Buffer), counts("b", map[string]float64{"script: x": 9}), some),
		"The table is of a. Another build executes other instructions")
	require.ErrorContains(t, table.renew(counts("b", map[string]float64{"script: x": 7}), some), "renew all rows")
	require.NoError(t, table.renew(counts("a", map[string]float64{"script: x": 7}), some))
	want := map[string]float64{"script: x": 7, "script: y": 2000, "luatomic: z x 36": 1000, "p": 5}
	require.Equal(t, want, table.Rows)
}

func TestThePageShowsABatchBesideOneCall(t *testing.T) {
	table := &instructions{Server: "Redis 1", Peers: map[string]string{"asynq": "v1"}, Rows: map[string]float64{
		"luatomic: push": 60_000, "luatomic: push x 36": 360_000, "luatomic: push x 100": 1_200_000,
		"asynq: forward x 36": 36_000,
	}}
	var page bytes.Buffer
	table.write(&page)
	for _, want := range []string{"\n| push | 60.0 | 360 | 10.0 |\n", "\n| push x 100 | 1200 |  |  |\n",
		"### asynq\n\n| call | 1 | x 36 | a 36th |\n|---|---|---|---|\n| forward |  | 36.0 | 1.00 |\n",
		"Versions: asynq 1.\n"} {
		require.Contains(t, page.String(), want)
	}
	require.NotContains(t, page.String(), "| push x 36 |")
}

// The names of scripts come from the list of valid calls, so a renamed script is another row.
func TestEveryCountedRowHasANameOfItsOwn(t *testing.T) {
	seen, calls := make(map[string]bool), make(map[string]int)
	for _, row := range countedRows() {
		require.False(t, seen[row.name], row.name)
		seen[row.name] = true
	}
	require.Greater(t, len(seen), 80)
	for _, call := range scriptcase.ScriptCalls() {
		calls[call.Script.Name]++
	}
	for script, n := range calls {
		if n > 1 {
			require.Len(t, cases[script], n, "%s: cases in instructions_rows.go name each of its calls", script)
		}
	}
	for script := range cases {
		require.Greater(t, calls[script], 1, "%s has one call, which needs no name", script)
	}
}

func TestADumpWithoutATotalIsAnError(t *testing.T) {
	require.Equal(t, 123_500.0, significant(123_456))
	require.Zero(t, significant(0))
	n, err := totalOf([]byte("summary: 3\n\ntotals: 12\n"), "f")
	require.NoError(t, err)
	require.Equal(t, 12.0, n)
	_, err = totalOf(nil, "f")
	require.ErrorContains(t, err, "no line of totals")
	_, err = startCounter(t.Context(), "no-such-server")
	require.ErrorContains(t, err, "not on PATH")
}
