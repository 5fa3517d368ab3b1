package luatomic_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/internal/scriptcase"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// Redis does not roll a script back. So each script declares what an error half-way can leave behind. This sweep
// raises the error: at the first write, at the second, and so on until a run ends without reaching its failpoint.
//
// A run is the script's own text behind one prefix on its first line, in which redis is a table that counts the
// writes and fails one of them. The prefix also stops the clock, so that two runs on the same data must end in the
// same state.
func TestFailpointsOfEveryScript(t *testing.T) {
	t.Parallel()
	cases := failpointCases()
	for _, call := range scriptcase.ScriptCalls() {
		cases = append(cases, failpointCase{name: call.Script.Name, run: call.Run, prepare: func(ctx context.Context, _ *testing.T, c *redis.Client, k string) error {
			return call.Prepare(ctx, c, k)
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
	for _, s := range scriptcase.AllScripts {
		require.True(t, swept[s.Name], "%s has no case", s.Name)
	}
}

// failpointCase is a call on prepared data; k is the test's tag. Its name begins with
// the script's.
type failpointCase struct {
	name    string
	prepare func(ctx context.Context, t *testing.T, c *redis.Client, k string) error
	run     func(ctx context.Context, c lua.Client, k string) (string, error)
	// then, if set, continues after a fault.
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

// dumped is a key in the form of RESTORE.
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
	// Later than every short delay of the preparation.
	now, err := s.c.Time(s.ctx).Result()
	require.NoError(t, err)
	s.clock = now.Add(time.Second)
	s.save()
	s.before = s.read()
	return s
}

// writeCommands returns the commands that change data according to the server, and PUBLISH.
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

// failpointPrefix has four parameters: the write commands, the number of the failing write, a key that is set when it
// is reached, and the time.
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

// eval runs the script with the n-th write failing, none for 0, and reports whether it was reached.
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

// save stores the data of the preparation, restore writes it back.
func (s *sweep) save() {
	for key, value := range lab.Dump(s.ctx, s.t, s.c, s.k) {
		s.dumps = append(s.dumps, dumped{key, value, max(0, s.c.PTTL(s.ctx, key).Val())})
	}
}

func (s *sweep) restore() {
	for key := range lab.Dump(s.ctx, s.t, s.c, s.k) {
		require.NoError(s.t, s.c.Del(s.ctx, key).Err())
	}
	for _, d := range s.dumps {
		require.NoError(s.t, s.c.Restore(s.ctx, d.key, d.ttl, d.value).Err())
	}
}
