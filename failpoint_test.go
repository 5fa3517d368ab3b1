package luatomic_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/luatomictest/luacover"
	"github.com/luatomic/luatomic/tools/luagen/luaprove"
)

// Redis does not roll a script back. So each script declares what an error half-way can leave behind. This sweep
// raises the error: at the first write, at the second, and so on until a run ends without reaching its failpoint.
//
// A run is the script's own text behind one prefix on its first line, see luaprove.Fault, which also stops the clock:
// two runs on the same data must end in the same state. What luagen knows of a contract is in
// TestPromisesOfEveryHeader; what this contract means for a job, a lock, a permit or a call is here.
func TestFailpointsOfEveryScript(t *testing.T) {
	t.Parallel()
	cases := failpointCases()
	for _, call := range scriptcase.ScriptCalls() {
		cases = append(cases, failpointCase{name: call.Script.Name, run: call.Run,
			prepare: func(ctx context.Context, _ *testing.T, c *redis.Client, k string) error {
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
	var err error
	s.writes, err = luaprove.WriteCommands(s.ctx, s.c)
	require.NoError(t, err)
	// Later than every short delay of the preparation.
	now, err := s.c.Time(s.ctx).Result()
	require.NoError(t, err)
	s.clock = now.Add(time.Second)
	s.dropExpiring()
	s.save()
	s.before = s.read()
	return s
}

// eval runs the script with the n-th write failing, none for 0, and reports whether it was reached.
func (s *sweep) eval(n int, at time.Time) (reply any, reached bool, err error) {
	mark := s.k + "-reached"
	require.NoError(s.t, s.c.Del(s.ctx, mark).Err())
	text := luaprove.Fault{Writes: s.writes, Reached: mark, Clock: at}.Text(lab.Text(s.c, s.script), n)
	args := append([]any{"EVAL", text}, s.args...)
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
			s.sameReply(reply)
			s.t.Logf("%s: %d failpoints", s.contract, n-1)
			return
		}
		if s.contract == "readonly" && os.Getenv(luacover.DirVar) != "" {
			return // luagen cover has each script report what it runs, with PUBLISH
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

// dropExpiring deletes the receipts of leases that are over for the sweep. Restored without a time to live they would
// stay.
func (s *sweep) dropExpiring() {
	keys := s.c.Scan(s.ctx, 0, "*"+s.k+"*", 1000).Iterator()
	for keys.Next(s.ctx) {
		if ttl := s.c.PTTL(s.ctx, keys.Val()).Val(); ttl >= 0 && ttl < time.Second {
			require.NoError(s.t, s.c.Del(s.ctx, keys.Val()).Err())
		}
	}
	require.NoError(s.t, keys.Err())
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
