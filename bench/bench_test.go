package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page is made of the result alone, so that no figure on it is written by hand.
func TestThePageIsMadeOfTheResult(t *testing.T) {
	plots := t.TempDir()
	require.NoError(t, os.WriteFile(plots+"/push-batch.svg", nil, 0o600))
	var page bytes.Buffer
	counts := &instructions{Rows: map[string]float64{"raw: PING": 3000}}
	require.NoError(t, writePage(&page, sample(100), sample(50), counts, plots))
	require.Contains(t, page.String(), "| PING | 3.00 |")
	require.Contains(t, page.String(), "(plots/push-batch.svg)\n\n`make bench-all ROWS='^push/batch=1'`")
	require.NotContains(t, page.String(), "lock-pairs.svg", "a plot that is not there is not shown")
	require.Contains(t, page.String(),
		"| push | 3 | luatomic | 100 [95.0 105] /s | 0.50 [0.47 0.53] | 2.00 [1.90 2.10] |")
}

// A figure in the page or the README that is not of the result file fails here: run make bench-page.
func TestPageAndReadmeShowTheResultFile(t *testing.T) {
	r, err := load("result.json")
	require.NoError(t, err)
	first, err := load("first.json")
	require.NoError(t, err)
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root+"/docs/plots", os.DirFS("../docs/plots")))
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(root+"/README.md", readme, 0o600))
	counts, err := loadInstructions(instructionsFile)
	require.NoError(t, err)
	require.NoError(t, publish(r, first, counts, root))
	for _, name := range []string{"README.md", "docs/benchmarks.md"} {
		have, err := os.ReadFile("../" + name)
		require.NoError(t, err)
		want, err := os.ReadFile(root + "/" + name)
		require.NoError(t, err)
		require.Equal(t, string(want), string(have), name)
	}
	plots, err := os.ReadDir("../docs/plots")
	require.NoError(t, err)
	require.Len(t, plots, len(figures))
	require.False(t, r.Options.Quick, "figures are of a whole run")
}

// A shell that reads the commands of the page and of the README of the benchmarks gets to the program.
func TestTheCommandsOfThePageReachTheProgram(t *testing.T) {
	found, all := 0, rows(new(bench), &result{Absent: map[string]string{}, Peers: map[string]string{}})
	for _, file := range []string{"../docs/benchmarks.md", "README.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`make bench-all ROWS='([^']*)'`).FindAllStringSubmatch(string(text), -1) {
			made, err := exec.CommandContext(t.Context(), "make", "-n", "-C", "..", "-o", "redis", "bench-all",
				"GO=echo go",
				"ROWS="+m[1]).Output()
			require.NoError(t, err)
			lines := strings.Split(strings.TrimSpace(string(made)), "\n")
			i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "cd bench") })
			require.GreaterOrEqual(t, i, 0, string(made))
			run := exec.CommandContext(t.Context(), "sh", "-c", lines[i])
			run.Dir = ".."
			out, err := run.CombinedOutput()
			require.NoError(t, err, string(out))
			require.Equal(t, "go run -tags container . run -rows "+m[1], strings.TrimSpace(string(out)), "of %s", file)
			require.True(t, slices.ContainsFunc(all, func(r contest) bool {
				return regexp.MustCompile(m[1]).MatchString(r.name)
			}), "%s names no row", m[0])
			found++
		}
	}
	require.Greater(t, found, 5)
}

func TestAReadmeWithoutItsTitleIsRefused(t *testing.T) {
	_, err := withFigures("# Other\n", sample(1))
	require.ErrorContains(t, err, "no figures between")
}

func sample(rate float64) *result {
	r := new(result)
	add := func(name string, k kind, samples ...float64) {
		for _, s := range samples {
			r.add(contest{row: row{name: "push", main: "per_s"}}, entrant{name: name, kind: k}, metrics{"per_s": s})
		}
	}
	add("luatomic", ours, rate, rate*1.1, rate*0.9)
	add("HSET + RPUSH", raw, 200, 200, 200)
	add("LPUSH", raw, 900, 900, 900)
	add("asynq", peer, 50, 50, 50)
	return r
}

func TestRatiosAreOfTheMedianAndTheTwin(t *testing.T) {
	m := &sample(100).Rows[0]
	e := m.entrant("luatomic")
	middle, ok := e.median("per_s")
	require.True(t, ok)
	require.InDelta(t, 100, middle, 1e-9)
	require.InDelta(t, 0.2, spreadOf(e.Metrics["per_s"]), 1e-9)
	require.Equal(t, "0.50 [0.47 0.53]", ratio(m, e, raw), "a list without ids is no twin")
	require.Equal(t, "2.00 [1.90 2.10]", ratio(m, e, peer))
}

func TestRatioOfATimeIsAboveOneWhenItIsShorter(t *testing.T) {
	r := new(result)
	ping := contest{row: row{name: "ping", main: "p50_us"}}
	r.add(ping, entrant{name: "luatomic", kind: ours}, metrics{"p50_us": 100})
	r.add(ping, entrant{name: "PING", kind: raw}, metrics{"p50_us": 80})
	require.Equal(t, "0.80 [0.80 0.80]", ratio(&r.Rows[0], r.Rows[0].entrant("luatomic"), raw))
}

// A faster machine is no better program: with the raw commands as much faster, nothing has changed.
func TestComparisonOfTwoMachinesIsByTheRawCommands(t *testing.T) {
	first, later := sample(100), new(result)
	later.Machine.CPU = "another"
	for _, s := range []float64{300, 301, 299} {
		push := contest{row: row{name: "push", main: "per_s"}}
		later.add(push, entrant{name: "luatomic", kind: ours}, metrics{"per_s": s})
		later.add(push, entrant{name: "LPUSH + HSET", kind: raw}, metrics{"per_s": 2 * s})
	}
	var out bytes.Buffer
	require.NoError(t, writeComparison(&out, first, later))
	require.Contains(t, out.String(), "| push | 0.50 x raw | 0.50 | +0 % | noise |")
	require.Contains(t, out.String(), "The machines differ")
}

func TestComparisonTellsChangeFromNoise(t *testing.T) {
	for rate, want := range map[float64]string{110: "| noise |", 200: "| better |", 50: "| worse |"} {
		var out bytes.Buffer
		require.NoError(t, writeComparison(&out, sample(100), sample(rate)))
		require.Contains(t, out.String(), want, rate)
	}
}

func TestWrongCommandsNameTheUsage(t *testing.T) {
	for _, args := range [][]string{{"runn"}, {"table"}, {"compare", "x"}, {"run", "extra"}} {
		require.ErrorContains(t, command(t.Context(), args), "usage: bench run", args)
	}
	require.ErrorContains(t, command(t.Context(), []string{"run", "-rows", "("}), "-rows: ")
	require.ErrorContains(t, command(t.Context(), []string{"table", "bench_test.go"}),
		"bench_test.go is no result file")
	require.ErrorContains(t, command(t.Context(), []string{"run", "-url", "redis://127.0.0.1:1", "-quick"}),
		"does not answer")
}

// Rows of one family stand in one table, although those of another are measured between them. What holds for an entrant
// in all of them is said once.
func TestATableForEachFamilySaysEachNoteOnce(t *testing.T) {
	r := new(result)
	for _, name := range []string{"lock/goroutines=1", "lock-piped/goroutines=1", "lock/goroutines=4"} {
		r.add(contest{row: row{name: name, what: "of " + name, main: "per_s"}},
			entrant{name: "redislock", kind: peer, note: "no fence"}, metrics{"per_s": 1})
	}
	var out bytes.Buffer
	require.NoError(t, writeTable(&out, r))
	_, tables, found := strings.Cut(out.String(), "\n### lock\n")
	require.True(t, found, out.String())
	locks, piped, found := strings.Cut(tables, "\n### lock-piped\n")
	require.True(t, found, tables)
	require.Contains(t, locks, "- `lock/goroutines=4`: of lock/goroutines=4.\n")
	require.Equal(t, 1, strings.Count(locks, "- redislock: no fence.\n"), locks)
	require.Equal(t, 1, strings.Count(piped, "- redislock: no fence.\n"), piped)
	require.Equal(t, 2, strings.Count(locks, "| redislock | 1.00 [1.00 1.00] /s |"), locks)
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{1.234: "1.23", 12.34: "12.3", 123.4: "123", 1234: "1234", 12_340: "12.3 k",
		123_400: "123 k", 1_234_000: "1.23 M"} {
		require.Equal(t, want, human(v))
	}
	require.True(t, strings.HasPrefix(metrics{"p50_us": 1}.String(), "p50 us 1"))
}
