package main

import (
	"crypto/sha1"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/drill/history"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest/luacover"
)

// mutant is a script with a fault in it, and the rule that a drill with it breaks.
type mutant struct {
	script, old, with string
	rules             []history.Rule
	roles             []string
	faults            []string
}

var (
	workers = []string{"producer", "consumer", "consumer", "taker", "operator"}
	takers  = []string{"producer", "consumer", "taker", "taker", "taker", "taker", "taker"}
	cancels = []string{"producer", "consumer", "consumer", "operator", "operator", "operator", "operator"}
	lockers = []string{"holder", "holder", "holder"}
)

// mutants by what they take away.
var mutants = map[string]mutant{
	"a reclaim that does not wait for the end of a lease": {
		"queue_reclaim", "'ZRANGE', leases, '-inf', now_us", "'ZRANGE', leases, '-inf', '+inf'",
		[]history.Rule{history.Shared}, workers, nil},
	"a reclaim that returns nothing": {
		"queue_reclaim", "if #entries > 0 then", "if false then",
		[]history.Rule{history.Lost}, workers, []string{"kill", "kill", "kill", "kill"}},
	"an ack that does not compare the lease": {
		"queue_ack", "if score and tonumber(score) == fences[i] then", "if score then",
		[]history.Rule{history.Returned}, takers, nil},
	"a take that gives out cancelled jobs": {
		"queue_take", "if count == 'x' then", "if false then",
		[]history.Rule{history.Returned}, cancels, nil},
	"a take that does not wait for the due time": {
		"queue_take", "scheduled, '-inf', now_ms", "scheduled, '-inf', '+inf'",
		[]history.Rule{history.Early}, workers, nil},
	"a release that does not compare the owner": {
		"lock_release", "if holder == owner then", "if true then",
		[]history.Rule{history.Shared, history.Refused}, lockers, nil},
	"a lock that is acquired while it is held": {
		"lock_try", "elseif left + delay > 0 and holder ~= '-' then", "elseif false then",
		[]history.Rule{history.Shared}, lockers, nil},
	"a mover that does not see that a job was moved": {
		"../compat/sidekiq/internal/script/move", "if score and tonumber(score) <= now then", "if true then",
		[]history.Rule{history.Doubled}, []string{"scheduler", "mover", "mover", "mover"}, nil},
	"a call that is sent although it is recorded": {
		"rpc_call", "elseif not known then", "else",
		[]history.Rule{history.Twice}, []string{"caller", "node", "node"}, nil},
	"a fence that does not grow": {
		"lock_try", "math.max(fence, fence_was + 1)", "fence_was",
		[]history.Rule{history.SameFence}, lockers, nil},
}

// A drill on a script with a fault finds it: the checker sees what it is there for.
func TestDrillFindsMutants(t *testing.T) {
	t.Parallel()
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); !m.found(t, seed); seed++ {
				require.Less(t, seed, uint64(24), "it is not found")
			}
		})
	}
}

// found runs a drill with the mutant for some seconds. What is lost, and what Sidekiq's queue holds, can be known only
// when all else is done.
func (m mutant) found(t *testing.T, seed uint64) bool {
	f, began := openField(t, seed, []string{luacover.MutantVar + "=" + m.file(t)}, m.roles...), time.Now()
	defer f.close()
	rounds, drains := 10, slices.Contains(m.rules, history.Lost) || slices.Contains(m.rules, history.Doubled)
	if drains {
		rounds = 3
	}
	for round := range rounds {
		for _, kind := range m.faults {
			kinds[kind](f)
		}
		sleep(t.Context(), time.Second)
		if drains && round == rounds-1 {
			f.drain()
		}
		if f.finds(m.rules) {
			t.Logf("found after %v", time.Since(began))
			return true
		}
	}
	return false
}

// file writes the mutant as luagen mutate does: the digest of the script that it replaces, and its text.
func (m mutant) file(t *testing.T) string {
	source := string(lab.Must(os.ReadFile(filepath.Join("..", "..", "..", "gen",
		strings.Replace(m.script, "_", "/", 1)+".lua"))))
	require.Contains(t, source, m.old)
	digest := sha1.Sum([]byte(source))
	path := filepath.Join(t.TempDir(), "mutant")
	text := hex.EncodeToString(digest[:]) + "\n" + strings.ReplaceAll(source, m.old, m.with)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// finds reports whether the history so far breaks one of the rules.
func (f *field) finds(rules []history.Rule) bool {
	// The processes still write: the last line can be half-written.
	all, _, err := history.ReadFile(f.history())
	require.NoError(f.t, err)
	for _, v := range history.Check(all) {
		if slices.Contains(rules, v.Rule) {
			f.t.Log(v)
			return true
		}
	}
	return false
}
