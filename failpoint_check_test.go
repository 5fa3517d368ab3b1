package luatomic_test

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// checkHint is for a write that may fail without the script: telling those who wait.
func (s *sweep) checkHint(n int, reply any) {
	if strings.HasPrefix(s.script.Name, "sem_") { // whoever cannot be told is passed over
		s.permitsAddUp(fmt.Sprint("write ", n), s.read())
		return
	}
	require.Equal(s.t, s.reply, reply, "write %d", n)
	require.Equal(s.t, s.want.work(), s.read().work(), "write %d: the script hides its error", n)
}

// check compares what a fault left behind with the contract.
func (s *sweep) check(fault string) {
	broken := s.read()
	if s.contract == "all-or-nothing" {
		require.Equal(s.t, s.before.values, broken.values, fault)
	}
	family, _, _ := strings.Cut(s.script.Name, "_")
	switch {
	case family == "lock" && s.contract == "dup-only":
		s.checkLock(fault, broken)
		return
	case family == "sem":
		s.checkPermits(fault, broken)
		return
	case family == "rpc":
		s.checkRPC(fault, broken)
		return
	case s.contract == "dup-only":
		s.nothingLost(fault, broken)
	}
	_, _, err := s.eval(0, s.clock)
	require.NoError(s.t, err, "repeat after %s", fault)
	after := s.read()
	if s.contract == "all-or-nothing" {
		require.Equal(s.t, s.want.values, after.values, "repeat after %s", fault)
		return
	}
	if reflect.DeepEqual(s.want.work(), broken.work()) {
		s.nothingLost(fault, after) // all was done, and the repeat is the next call
		return
	}
	s.sameButRepeated(fault, after)
}

// nothingLost wants every job in one of its places, with its body, unless the call was
// to finish it.
func (s *sweep) nothingLost(fault string, broken contents) {
	for id := range s.before.ids() {
		if !s.want.ids()[id] {
			continue
		}
		require.True(s.t, broken.ids()[id], "job %q is lost: %s", id, fault)
		body, ok := s.before.hash("b")[id]
		if !ok {
			continue
		}
		got, ok := broken.hash("b")[id]
		require.True(s.t, ok, "the body of job %q is lost: %s", id, fault)
		require.Contains(s.t, []string{body, s.want.hash("b")[id]}, got, fault)
	}
}

// sameButRepeated wants the state of a run without a fault, but that jobs may stand in
// ready once more, that counters may have counted twice, and that those who wait may
// have been told.
func (s *sweep) sameButRepeated(fault string, after contents) {
	known := s.before.ids()
	for name := range merged(s.want.values, after.values) {
		if name == after.tag+"w" {
			continue
		}
		what := fmt.Sprintf("%s after a repeat after %s", name, fault)
		switch want := s.want.values[name].(type) {
		case []string:
			got, _ := after.values[name].([]string)
			for _, entry := range extra(s.t, want, got, what) {
				require.True(s.t, known[jobID(entry)], "%s: %q", what, entry)
			}
		case map[string]string:
			got, _ := after.values[name].(map[string]string)
			s.countersAside(name, want, got, what)
		case nil:
			list, ok := after.values[name].([]string)
			require.True(s.t, ok, "%s: %v", what, after.values[name])
			for _, entry := range list {
				require.True(s.t, known[jobID(entry)], "%s: %q", what, entry)
			}
		case map[string]float64:
			got, _ := after.values[name].(map[string]float64)
			require.True(s.t, maps.Equal(s.moved(want, after, name), got), "%s: %v, not %v", what, got, want)
		default:
			require.Equal(s.t, want, after.values[name], what)
		}
	}
}

// moved is want without the jobs that are due: a repeat may make more of them ready
// than one run does.
func (s *sweep) moved(want map[string]float64, after contents, name string) map[string]float64 {
	if name != after.tag+"s" {
		return want
	}
	list, _ := after.values[after.tag+"r"].([]string)
	out := maps.Clone(want)
	for _, entry := range list {
		if out[jobID(entry)] <= float64(s.clock.UnixMilli()) {
			delete(out, jobID(entry))
		}
	}
	return out
}

// countersAside compares hashes. A number that the call moves may be off by as much
// as it moves it, the reason beside it may be the old one, and what was cancelled may
// keep its body until a worker comes to it.
func (s *sweep) countersAside(name string, want, got map[string]string, what string) {
	before, _ := s.before.values[name].(map[string]string)
	for field := range merged(want, got) {
		at := fmt.Sprintf("%s: %q", what, field)
		switch suffix := strings.TrimPrefix(name, s.want.tag); {
		case want[field] == got[field]:
		case suffix == "b" && s.want.hash("n")[field] == "x":
			require.Equal(s.t, before[field], got[field], at)
		case suffix == "n" && strings.HasSuffix(field, "\n"):
			require.Equal(s.t, before[field], got[field], at)
		case suffix == "n" || suffix == "c":
			was, once, twice := s.number(before, field, at), s.number(want, field, at), s.number(got, field, at)
			require.InDelta(s.t, once, twice, math.Abs(once-was), at)
		default:
			require.Equal(s.t, want[field], got[field], at)
		}
	}
}

func (s *sweep) number(hash map[string]string, field, what string) float64 {
	text, ok := hash[field]
	if !ok {
		return 0
	}
	n, err := strconv.ParseFloat(text, 64)
	require.NoError(s.t, err, what)
	return n
}

// checkLock wants a repeat by the same owner to succeed, a moment later, under the
// fence that the fault left behind, if it left one, and never two holders.
func (s *sweep) checkLock(fault string, broken contents) {
	record, _ := broken.values["lock:{"+s.k+"}"].(string)
	reply, _, err := s.eval(0, s.clock.Add(5*time.Millisecond))
	require.NoError(s.t, err, "repeat after %s", fault)
	if s.script.Name != "lock_acquire" {
		if s.script.Name != "lock_force" && s.script.Name != "lock_acquire_all" {
			require.Equal(s.t, s.reply, reply, fault)
		}
		return
	}
	fields := strings.Fields(record)
	if len(fields) < 3 {
		return
	}
	switch row := reply.([]any); fields[2] {
	case "me":
		require.Equal(s.t, fields[0], fmt.Sprint(row[2]), "the fence changed: %s", fault)
	case "x", "y": // handed to one who does not live, until its lease is over
		require.Zero(s.t, row[0], fault)
	default:
		require.Equal(s.t, s.reply.([]any)[0], row[0], fault)
	}
}

// checkRPC wants a record to expire whatever happened, and a repeat to have the same
// outcome or to say that it is done.
func (s *sweep) checkRPC(fault string, broken contents) {
	const stays = "the record never expires: "
	record := "{" + s.k + "}:r:1"
	if !s.before.lasting[record] {
		require.NotContains(s.t, broken.lasting, record, stays+fault)
	}
	reply, _, err := s.eval(0, s.clock)
	require.NoError(s.t, err, "repeat after %s", fault)
	outcome := []any{s.reply, int64(2), int64(0)}
	switch rows, ok := reply.([]any); {
	case ok && (s.script.Name == "rpc_call" || s.script.Name == "rpc_direct"):
		outcome = []any{s.reply.([]any)[0], int64(2)}
		reply = rows[0]
	case s.script.Name == "rpc_rescue": // alive, at the node that has it now, or lost already
		outcome = []any{s.reply.([]any)[0], int64(1)}
		reply = rows[0]
	}
	require.Contains(s.t, outcome, reply, "repeat after %s", fault)
	after := s.read()
	if !s.before.lasting[record] {
		require.NotContains(s.t, after.lasting, record, stays+"repeat after "+fault)
	}
	if reply == int64(2) && s.want.values[record] == nil {
		return // an undo that failed itself: the record says pending until it expires
	}
	require.Equal(s.t, s.want.values[record], after.values[record], "repeat after %s", fault)
}

// extra are the elements of got beyond want, which must stand in it in its order.
func extra(t *testing.T, want, got []string, what string) (out []string) {
	t.Helper()
	next := 0
	for _, v := range got {
		if next < len(want) && want[next] == v {
			next++
		} else {
			out = append(out, v)
		}
	}
	require.Equal(t, len(want), next, "%s: %q is not all in %q", what, want, got)
	return out
}

// merged has the keys of both maps.
func merged[V any](a, b map[string]V) map[string]bool {
	out := make(map[string]bool)
	for k := range a {
		out[k] = true
	}
	for k := range b {
		out[k] = true
	}
	return out
}
