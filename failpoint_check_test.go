package luatomic_test

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// checkHint is for a write whose failure the script ignores: the notification of waiters.
func (s *sweep) checkHint(n int, reply any) {
	if strings.HasPrefix(s.script.Name, "lock_sem_") { // a waiter that cannot be notified is skipped
		s.permitsAddUp(fmt.Sprint("write ", n), s.read())
		return
	}
	s.sameReply(reply)
	require.Equal(s.t, s.want.work(), s.read().work(), "write %d: the script hides its error", n)
}

// sameReply requires the reply of the first call. The time to live of the record of a lock goes on while the clock of
// the sweep stands still.
func (s *sweep) sameReply(reply any) {
	want, rows := s.reply.([]any)
	got, ok := reply.([]any)
	name := s.script.Name
	lock := strings.HasPrefix(name, "lock_") && !strings.HasPrefix(name, "lock_sem_")
	if !lock || !rows || !ok || len(want) != len(got) {
		require.Equal(s.t, s.reply, reply)
		return
	}
	for i := range want {
		if was, number := want[i].(int64); number && got[i] != want[i] {
			require.InDelta(s.t, was, got[i], 5000)
			continue
		}
		require.Equal(s.t, want[i], got[i])
	}
}

// check compares the state after a fault with the contract.
func (s *sweep) check(fault string) {
	broken := s.read()
	if s.contract == "all-or-nothing" {
		require.Equal(s.t, s.before.values, broken.values, fault)
	}
	family, _, _ := strings.Cut(strings.Replace(s.script.Name, "lock_sem_", "sem_", 1), "_")
	switch {
	case family == "lock" && s.contract == "dup-only":
		s.checkLock(fault, broken)
		return
	case family == "sem":
		s.checkPermits(fault, broken)
		return
	case family == "limit":
		s.checkLimits(fault, broken)
		return
	case family == "rpc":
		s.checkRPC(fault, broken)
		return
	case s.contract == "dup-only":
		s.nothingLost(fault, broken)
	}
	s.retry(fault)
	after := s.read()
	if s.contract == "all-or-nothing" {
		require.Equal(s.t, s.want.values, after.values, "retry after %s", fault)
		return
	}
	if reflect.DeepEqual(s.want.work(), broken.work()) {
		s.nothingLost(fault, after) // all was done, and the repeat is the next call
		return
	}
	s.sameButRepeated(fault, after)
}

// retry makes the call again as its caller does: a take that had an error starts over, under the next number.
func (s *sweep) retry(fault string) {
	if s.script.Name == "queue_take" {
		args := s.args
		defer func() { s.args = args }()
		s.args = slices.Clone(args)
		number := func(i int) int { // arguments may be pointers
			n, err := strconv.Atoi(fmt.Sprint(reflect.Indirect(reflect.ValueOf(args[i]))))
			require.NoError(s.t, err)
			return n
		}
		token := 1 + number(0) + 4
		s.args[token] = number(token) + 1
	}
	_, _, err := s.eval(0, s.clock)
	require.NoError(s.t, err, "retry after %s", fault)
}

// nothingLost requires every job in one of its keys, with its body, unless the call finishes it.
func (s *sweep) nothingLost(fault string, broken contents) {
	wanted, left := s.want.ids(), broken.ids()
	before, want, bodies := s.before.hash("b"), s.want.hash("b"), broken.hash("b")
	for id := range s.before.ids() {
		if !wanted[id] {
			continue
		}
		require.True(s.t, left[id], "job %q is lost: %s", id, fault)
		body, ok := before[id]
		if !ok {
			continue
		}
		got, ok := bodies[id]
		require.True(s.t, ok, "the body of job %q is lost: %s", id, fault)
		require.Contains(s.t, []string{body, want[id]}, got, fault)
	}
}

// sameButRepeated requires the state of a run without a fault, except that jobs may be in ready twice, counters may
// have counted twice, and waiters may have been notified.
func (s *sweep) sameButRepeated(fault string, after contents) {
	known := s.before.ids()
	for name := range merged(s.want.values, after.values) {
		if kindOf(name) == "w" {
			continue
		}
		what := fmt.Sprintf("%s after a retry after %s", name, fault)
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
			if got, ok := after.values[name].(map[string]string); ok { // counters that would be back to 0
				s.countersAside(name, nil, got, what)
				continue
			}
			list, ok := after.values[name].([]string)
			require.True(s.t, ok, "%s: %v", what, after.values[name])
			for _, entry := range list {
				require.True(s.t, known[jobID(entry)], "%s: %q", what, entry)
			}
		case map[string]float64:
			got, _ := after.values[name].(map[string]float64)
			if s.script.Name == "queue_take" && kindOf(name) == "l" &&
				s.before.values[strings.TrimSuffix(name, "l")+"d"] != nil {
				continue // the entry of a job that was buried while ready may deliver it, in place of the next one
			}
			require.True(s.t, maps.Equal(s.moved(want, after, name), got), "%s: %v, not %v", what, got, want)
		default:
			if slices.Contains([]string{"queue_nack", "queue_take", "queue_cancel", "queue_bury", "queue_requeue"},
				s.script.Name) {
				continue // a receipt: it has what the repeat has done
			}
			require.Equal(s.t, want, after.values[name], what)
		}
	}
}

// moved returns want without the due jobs: a retry may make more of them ready than one run does.
func (s *sweep) moved(want map[string]float64, after contents, name string) map[string]float64 {
	if kindOf(name) != "s" {
		return want
	}
	list, _ := after.values[strings.TrimSuffix(name, "s")+"r"].([]string)
	out := maps.Clone(want)
	for _, entry := range list {
		if out[jobID(entry)] <= float64(s.clock.UnixMilli()) {
			delete(out, jobID(entry))
		}
	}
	return out
}

// countersAside compares hashes. A counter that the call changes may be off by that change, the reason beside it may
// be the old one, and a cancelled job may keep its body until a worker takes it.
func (s *sweep) countersAside(name string, want, got map[string]string, what string) {
	before, _ := s.before.values[name].(map[string]string)
	for field := range merged(want, got) {
		at := fmt.Sprintf("%s: %q", what, field)
		switch suffix := kindOf(name); {
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
	n, err := strconv.ParseFloat(strings.TrimPrefix(text, "b"), 64) // b: buried while ready
	require.NoError(s.t, err, what)
	return n
}

// checkLock requires a later retry by the same owner to succeed, under the fence that the fault left, if any, and
// never two holders.
func (s *sweep) checkLock(fault string, broken contents) {
	record, _ := broken.values["lock:{"+s.k+"}"].(string)
	reply, _, err := s.eval(0, s.clock.Add(5*time.Millisecond))
	require.NoError(s.t, err, "retry after %s", fault)
	switch s.script.Name {
	case "lock_force", "lock_acquire_all":
		return
	case "lock_release", "lock_leave": // a repeat finds no record of the owner
		after, _ := s.read().values["lock:{"+s.k+"}"].(string)
		require.NotContains(s.t, after, " me ", fault)
		return
	case "lock_extend":
		require.Equal(s.t, s.reply, reply, fault)
		return
	}
	fields := strings.Fields(record)
	if len(fields) < 5 {
		return
	}
	switch row := reply.([]any); fields[4] {
	case "me":
		require.Equal(s.t, fields[1], fmt.Sprint(row[2]), "the fence changed: %s", fault)
	case "x", "y": // granted to a dead waiter, until its lease expires
		require.Zero(s.t, row[0], fault)
	default:
		require.Equal(s.t, s.reply.([]any)[0], row[0], fault)
	}
}

// checkRPC requires the record to expire in any case, and a retry to have the same outcome or to report that it is
// done.
func (s *sweep) checkRPC(fault string, broken contents) {
	const stays = "the record never expires: "
	record := "{" + s.k + "}:r:1"
	if !s.before.lasting[record] {
		require.NotContains(s.t, broken.lasting, record, stays+fault)
	}
	reply, _, err := s.eval(0, s.clock)
	require.NoError(s.t, err, "retry after %s", fault)
	outcome := []any{s.reply, int64(2), int64(0)}
	switch rows, ok := reply.([]any); {
	case ok && s.script.Name == "rpc_decide":
		outcome = []any{s.reply.([]any)[0], int64(2)}
		reply = rows[0]
	case ok && s.script.Merge != nil: // a call of one row
		outcome[0], reply = s.reply.([]any)[0], rows[0]
	case s.script.Name == "rpc_join": // that the lease had lapsed; a node takes the error for it
		rows[3] = s.reply.([]any)[3]
	}
	require.Contains(s.t, outcome, reply, "retry after %s", fault)
	after := s.read()
	if !s.before.lasting[record] {
		require.NotContains(s.t, after.lasting, record, stays+"retry after "+fault)
	}
	if reply == int64(2) && s.want.values[record] == nil {
		return // an undo that failed itself: the record says pending until it expires
	}
	require.Equal(s.t, s.want.values[record], after.values[record], "retry after %s", fault)
}

// checkLimits requires that nothing is there to be spent that was not before, or is not after a call without a fault.
func (s *sweep) checkLimits(fault string, broken contents) {
	whole := func(c contents, key string) int64 {
		text, _ := c.values[key].(string)
		us, err := strconv.ParseInt(strings.SplitN(text+" ", " ", 2)[0], 10, 64)
		require.True(s.t, text == "" || err == nil, "%q", text)
		return us
	}
	s.retry(fault)
	after := s.read()
	for key := range merged(s.before.values, s.want.values) {
		if strings.HasPrefix(key, "limit:") {
			require.GreaterOrEqual(s.t, whole(broken, key), min(whole(s.before, key), whole(s.want, key)), fault)
			require.GreaterOrEqual(s.t, whole(after, key), whole(s.want, key), "retry after %s", fault)
		}
	}
}

// extra returns the elements of got beyond want; got must contain want in order.
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
