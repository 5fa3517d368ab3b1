package luatomic_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// Redis does not roll a script back. So each script declares what an error half-way
// can leave behind, and here the error comes: at its first write, at its second, and
// so on until a run ends without meeting its failpoint.
//
// A run is the script's own text behind one prefix on its first line, in which redis
// is a table that counts the writes and lets one of them fail. The prefix also stops
// the clock, so that two runs on the same data must end in the same state.
func TestFailpointsOfEveryScript(t *testing.T) {
	t.Parallel()
	cases := failpointCases()
	for _, call := range scriptCalls() {
		cases = append(cases, failpointCase{name: call.script.Name, run: call.run, prepare: func(ctx context.Context, _ *testing.T, c *redis.Client, k string) error {
			return call.prepare(ctx, c, k)
		}})
	}
	swept := make(map[string]bool)
	for _, fc := range cases {
		t.Run(fc.name, func(t *testing.T) {
			t.Parallel()
			newSweep(t, fc).run()
		})
		name, _, _ := strings.Cut(fc.name, "/")
		swept[name] = true
	}
	for _, s := range allScripts {
		require.True(t, swept[s.Name], "%s has no case", s.Name)
	}
}

// failpointCase is a call on prepared data; k is the test's tag. Its name begins with
// the script's.
type failpointCase struct {
	name    string
	prepare func(ctx context.Context, t *testing.T, c *redis.Client, k string) error
	run     func(ctx context.Context, c lua.Client, k string) (string, error)
	// then, if set, goes on from what a fault left behind.
	then func(ctx context.Context, t *testing.T, c *redis.Client, k, fault string)
}

// sweep is one case under every failpoint.
type sweep struct {
	t        *testing.T
	ctx      context.Context
	c        *redis.Client
	k        string
	script   *lua.Script
	contract string
	args     []any  // of EVAL, after the text
	writes   string // the commands that count, as a Lua table
	clock    time.Time
	dumps    []dumped

	before, want contents
	reply        any // of the run without a fault
	then         func(ctx context.Context, t *testing.T, c *redis.Client, k, fault string)
}

// dumped is a key as RESTORE takes it.
type dumped struct {
	key, value string
	ttl        time.Duration
}

var contractLine = regexp.MustCompile(`(?m)^---@(?:contract +(\S+)|(readonly)\b)`)

func newSweep(t *testing.T, fc failpointCase) *sweep {
	s := &sweep{t: t, ctx: t.Context(), c: luatomictest.Client(t), k: luatomictest.Namespace(t), then: fc.then}
	require.NoError(t, fc.prepare(s.ctx, t, s.c, s.k))
	s.script, s.args = recordCall(s.ctx, t, fc.run, s.k)
	name, _, _ := strings.Cut(fc.name, "/")
	require.Equal(t, name, s.script.Name)
	found := contractLine.FindStringSubmatch(*s.script.Source)
	require.NotNil(t, found, "no contract in the header")
	s.contract = found[1] + found[2]
	s.writes = writeCommands(s.ctx, t, s.c)
	// Later than all that the preparation has put off for a moment.
	now, err := s.c.Time(s.ctx).Result()
	require.NoError(t, err)
	s.clock = now.Add(time.Second)
	s.save()
	s.before = s.read()
	return s
}

// writeCommands are those that change data, by the server's own word, and PUBLISH.
func writeCommands(ctx context.Context, t *testing.T, c *redis.Client) string {
	infos, err := c.Command(ctx).Result()
	require.NoError(t, err)
	names := []string{"publish=1", "spublish=1"}
	for name, info := range infos {
		if slices.Contains(info.Flags, "write") && !strings.ContainsAny(name, "|-.") {
			names = append(names, strings.ToLower(name)+"=1")
		}
	}
	require.Greater(t, len(names), 50)
	slices.Sort(names)
	return "{" + strings.Join(names, ",") + "}"
}

// failpointPrefix wants the writes, the number of the one that fails, a key that tells
// that it came to that, and the time.
const failpointPrefix = `local redis = (function(real) ` +
	`local writes, at, reached, seconds, micros, n = %s, %d, '%s', '%d', '%d', 0 ` +
	`local function fails(c) if not writes[string.lower(c)] then return false end n = n + 1 ` +
	`if n ~= at then return false end real.call('SET', reached, n) return true end ` +
	`local function faulty(f, raise) return function(c, ...) ` +
	`if string.lower(c) == 'time' then return {seconds, micros} end ` +
	`if fails(c) then local e = {err = 'ERR failpoint ' .. n .. ', ' .. c} if raise then error(e) end return e end ` +
	`return f(c, ...) end end ` +
	`return {call = faulty(real.call, true), pcall = faulty(real.pcall, false), error_reply = real.error_reply, ` +
	`status_reply = real.status_reply, sha1hex = real.sha1hex, log = real.log} end)(redis) `

// eval runs the script with the n-th write failing, none for 0, and says whether it
// came to that.
func (s *sweep) eval(n int, at time.Time) (reply any, reached bool, err error) {
	mark := s.k + "-reached"
	require.NoError(s.t, s.c.Del(s.ctx, mark).Err())
	prefix := fmt.Sprintf(failpointPrefix, s.writes, n, mark, at.Unix(), at.Nanosecond()/1000)
	args := append([]any{"EVAL", prefix + *s.script.Source}, s.args...)
	reply, err = s.c.Do(s.ctx, args...).Result()
	if err == redis.Nil {
		err = nil
	}
	seen, markErr := s.c.Exists(s.ctx, mark).Result()
	require.NoError(s.t, markErr)
	return reply, seen == 1, err
}

func (s *sweep) run() {
	var err error
	s.reply, _, err = s.eval(0, s.clock)
	require.NoError(s.t, err)
	s.want = s.read()
	for n := 1; ; n++ {
		s.restore()
		reply, reached, err := s.eval(n, s.clock)
		if !reached {
			require.NoError(s.t, err)
			require.Equal(s.t, s.reply, reply)
			s.t.Logf("%s: %d failpoints", s.contract, n-1)
			return
		}
		require.NotEqual(s.t, "readonly", s.contract, "a script that only reads has a write")
		if err == nil {
			s.checkHint(n, reply)
			continue
		}
		require.ErrorContains(s.t, err, "failpoint")
		s.check(err.Error())
		if s.then != nil {
			s.restore()
			_, _, _ = s.eval(n, s.clock) // the same fault again
			s.then(s.ctx, s.t, s.c, s.k, err.Error())
		}
	}
}

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

// save keeps the data that the preparation made, restore puts it back.
func (s *sweep) save() {
	for key, value := range dump(s.ctx, s.t, s.c, s.k) {
		s.dumps = append(s.dumps, dumped{key, value, max(0, s.c.PTTL(s.ctx, key).Val())})
	}
}

func (s *sweep) restore() {
	for key := range dump(s.ctx, s.t, s.c, s.k) {
		require.NoError(s.t, s.c.Del(s.ctx, key).Err())
	}
	for _, d := range s.dumps {
		require.NoError(s.t, s.c.Restore(s.ctx, d.key, d.ttl, d.value).Err())
	}
}
