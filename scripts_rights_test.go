package luatomic_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/operate"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// mayChange is what else a script may leave in a key that it was not allowed to finish, by the names of both.
var mayChange = map[string][]string{
	// The name of a queue without jobs: what comes after it was refused.
	"sidekiq/push queues": {"a", "a b"}, "sidekiq/push_once queues": {"a", "a b"}, "sidekiq/move queues": {"a b"},
	"sidekiq/worker_return queues": {"a"},
	// A finished job is finished, whatever becomes of the jobs that are to be taken.
	"sidekiq/worker_take working": {"2 7:queue:atwo 3 7:queue:bthree last 3"},
	// A process that has called is alive.
	"sidekiq/worker_take processes": {"lapsed 1 new T alive T"},
	"sidekiq/worker_beat processes": {"lapsed 1 new T alive T"},
	// It has its new time, and no receipt: the caller gets the error.
	"sidekiq/reschedule retry": {"other 2 " + `{"queue":"a","enqueued_at":1.5}` + " 77.5 later T"},
	"sidekiq/decline since":    {"T"}, // a job that stays can have a first decline
}

// counts are keys whose commands may be refused while the job goes on.
var counts = []string{"processed", "processed_day", "failed", "failed_day", "day", "rescued"}

// A user who lacks one or two of a script's commands changes nothing by it: a job that was added before the command
// which removes it was refused would be there again after each attempt.
func TestAScriptOfADialectThatMayNotDoAllDoesNothing(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	r := newRightsSweep(t)
	for _, call := range scriptcase.RawCalls(t)["dialects"] {
		commands := operate.Commands([]*lua.Script{call.Script})
		slices.Sort(commands)
		commands = slices.Compact(commands)
		_, whole, err := r.run(call)
		require.NoError(t, err, call.Name)
		for i := range commands {
			for j := i; j < len(commands); j++ {
				r.refused(call, whole, commands[i], commands[j])
			}
		}
	}
}

// The runtime says of an error at a line before a script's first write that nothing was executed. Each script,
// called without one of its commands, stops there or later.
func TestAnErrorBeforeTheFirstWriteOfAScriptChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRightsSweep(t)
	before, later := 0, 0
	for _, calls := range scriptcase.RawCalls(t) {
		for _, call := range calls {
			for _, command := range operate.Commands([]*lua.Script{call.Script}) {
				was, is, err := r.run(call, command)
				line := lineOf(err)
				switch {
				case line == 0:
				case line <= call.Script.WritesAfter:
					before++
					require.Equal(t, was, is, "%s without %s: %v", call.Name, command, err)
				case r.same(call, was, is) != "":
					later++
				}
			}
		}
	}
	require.Greater(t, before, 100)
	require.Greater(t, later, 10, "or no script of these changes anything before it stops")
}

var atLine = regexp.MustCompile(`user_script:(\d+)`)

// lineOf is the line at which a script was stopped, 0 without an error.
func lineOf(err error) int {
	if err == nil {
		return 0
	}
	found := atLine.FindStringSubmatch(err.Error())
	if found == nil {
		return 0
	}
	return lab.Must(strconv.Atoi(found[1]))
}

// rightsSweep calls scripts as a user without some commands.
type rightsSweep struct {
	t          *testing.T
	admin, app *redis.Client
}

func newRightsSweep(t *testing.T) *rightsSweep {
	server := luatomictest.StartServer(t)
	return &rightsSweep{t: t, admin: server.Client(), app: server.Client(func(o *redis.Options) {
		o.Username, o.Password, o.MaxRetries = "app", "pw", -1
	})}
}

// refused calls a script without two commands, or one. What it does then is nothing, or all of it.
func (r *rightsSweep) refused(call scriptcase.RawCall, whole map[string]string, without ...string) {
	r.t.Helper()
	before, after, err := r.run(call, without...)
	name := fmt.Sprintf("%s without %s", call.Name, strings.Join(slices.Compact(without), " and "))
	if err != nil {
		require.Regexp(r.t, "NOPERM|can't run this command", err.Error(), name) // Redis 7.0 has no code
	}
	if err == nil && r.same(call, whole, after) == "" {
		return
	}
	assert.Empty(r.t, r.same(call, before, after), "%s, with %v; done, %s", name, err, r.same(call, whole, after))
}

// same returns which key has other values than it may have.
func (r *rightsSweep) same(call scriptcase.RawCall, want, got map[string]string) string {
	for key := range merged(want, got) {
		if want[key] != got[key] && !slices.Contains(counts, key) &&
			!slices.Contains(mayChange[call.Name+" "+key], got[key]) {
			return fmt.Sprintf("%s is %q, not %q", key, got[key], want[key])
		}
	}
	return ""
}

// run returns the values before and after a call, made as a user with all rights but some.
func (r *rightsSweep) run(call scriptcase.RawCall, without ...string) (before, after map[string]string, err error) {
	r.t.Helper()
	ctx := r.t.Context()
	require.NoError(r.t, r.admin.FlushAll(ctx).Err())
	require.NoError(r.t, call.Prepare(ctx, r.admin))
	rule := []any{"ACL", "SETUSER", "app", "on", ">pw", "allkeys", "allchannels", "+@all"}
	for _, command := range without {
		rule = append(rule, "-"+command)
	}
	require.NoError(r.t, r.admin.Do(ctx, rule...).Err())
	before = r.values()
	err = r.app.Eval(ctx, lab.Text(r.app, call.Script), call.Keys, args(call)...).Err()
	if err == redis.Nil {
		err = nil
	}
	return before, r.values(), err
}

func args(call scriptcase.RawCall) (out []any) {
	for _, arg := range call.Args {
		out = append(out, arg)
	}
	return out
}

// times are what two calls write differently.
var times = regexp.MustCompile(`\d{10,}(\.\d+)?`)

// values are those of all keys, without times.
func (r *rightsSweep) values() map[string]string {
	r.t.Helper()
	reply, err := r.admin.Eval(r.t.Context(), readAll, nil).Slice()
	require.NoError(r.t, err)
	out := make(map[string]string)
	for i := 0; i < len(reply); i += 2 {
		out[reply[i].(string)] = times.ReplaceAllString(fmt.Sprint(reply[i+1]), "T")
	}
	return out
}

// readAll returns the values of each key, those of a set or a hash in order.
const readAll = `
local out = {}
local read = {string = {'GET'}, list = {'LRANGE', 0, -1}, set = {'SMEMBERS'}, hash = {'HGETALL'},
  zset = {'ZRANGE', 0, -1, 'WITHSCORES'}}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local all = redis.call(read[kind][1], key, unpack(read[kind], 2))
  if kind == 'hash' then
    for i = 1, #all / 2 do all[i] = table.remove(all, i) .. ' ' .. all[i] end
  end
  if kind == 'hash' or kind == 'set' then table.sort(all) end
  out[#out + 1], out[#out + 2] = key, type(all) == 'table' and table.concat(all, ' ') or all
end
return out`
