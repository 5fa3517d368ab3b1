package sidekiq_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
)

// The time that the scripts write has the form in which Ruby writes the same float, for all last digits.
func TestStampsAreWrittenAsRubyDoes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	f.schedule(sidekiq.Retry, 1, dueOther)
	for micros, want := range map[string]string{
		"0": "1795230010.0", "29114": "1795230010.029114", "29000": "1795230010.029", "100000": "1795230010.1",
		"999999": "1795230010.999999", "7": "1795230010.000007",
	} {
		milliseconds := fmt.Sprintf("1795230010%03d", atoi(t, micros)/1000)
		for unit, stamp := range []string{want, milliseconds} {
			for _, call := range []struct {
				script *lua.Script
				keys   []string
				args   []any
			}{
				{&script.PushScript, []string{"queues", "schedule", "queue:b"},
					[]any{f.key("queue:"), unit, 5000, "1:1:;", strings.TrimSuffix(dueOther, "}")}},
				{&script.PushOnceScript, []string{"receipt" + micros + fmt.Sprint(unit), "queues",
					"schedule", "queue:b"},
					[]any{60000, f.key("queue:"), unit, "1:1:;", "digest", strings.TrimSuffix(dueOther, "}")}},
				{&script.MoveScript, []string{"retry", "queues", "queue:b"},
					[]any{f.key("queue:"), unit, places(1, 18, 18), dueOther}},
			} {
				for i := range call.keys {
					call.keys[i] = f.key(call.keys[i])
				}
				for i, a := range call.args {
					if a == f.key("queue:") {
						call.args[i] = len(f.key("queue:"))
					}
				}
				f.schedule(sidekiq.Retry, 1, dueOther)
				require.NoError(t, f.client.Eval(f.ctx, clockAt(micros)+lab.Text(f.client, call.script), call.keys,
					call.args...).Err())
				require.Equal(t, strings.TrimSuffix(dueOther, "}")+`,"enqueued_at":`+stamp+"}",
					f.client.LPop(f.ctx, f.key("queue:b")).Val())
			}
		}
	}
}

// clockAt is what stops the clock of a script at that microsecond, by a prefix on its first line.
func clockAt(micros string) string {
	return `local redis = (function(real) return {pcall = real.pcall, call = function(c, ...) ` +
		`if c == 'TIME' then return {'1795230010', '` + micros + `'} end return real.call(c, ...) end} end)(redis) `
}

// places is a plan of Move: place, from and till of each member.
func places(numbers ...uint32) (plan []byte) {
	for i, n := range numbers {
		if i%3 == 0 {
			plan = binary.BigEndian.AppendUint16(plan, uint16(n))
		} else {
			plan = binary.BigEndian.AppendUint32(plan, n)
		}
	}
	return plan
}

// An estimate of the server's time within the slack is kept, any other is replaced.
func TestAGuessIsKeptOrWrittenAnew(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	head, guess := `{"n":1`, `,"enqueued_at":1795230010.5}`
	const now int64 = 1795230010029114 // us, what the clock says
	for off, kept := range map[int64]bool{
		0: true, 5000: true, -5000: true, 5001: false, -5001: false, 1e9: false, -1e9: false,
	} {
		plan := fmt.Sprintf("1:1:~%d,%d;1:1:;1:1:~%d,%d;", len(guess), now+off, len(guess), now)
		require.NoError(t, f.client.Eval(f.ctx, clockAt("29114")+lab.Text(f.client, &script.PushScript),
			[]string{f.key("queues"), f.key("schedule"), f.key("queue:b")},
			len(f.key("queue:")), 0, 5000, plan, head+guess, `{"n":2`, head+guess).Err())
		want := head + `,"enqueued_at":1795230010.029114}`
		if kept {
			want = head + guess
		}
		require.Equal(t, []string{want, `{"n":2,"enqueued_at":1795230010.029114}`, head + guess}, f.queue("b"), off)
		require.NoError(t, f.client.Del(f.ctx, f.key("queue:b")).Err())
	}
}

// sentPlans records the plans of the pushes that pass it.
type sentPlans struct {
	redis.UniversalClient
	all []string
}

func (s *sentPlans) Process(ctx context.Context, cmd redis.Cmder) error {
	for _, arg := range cmd.Args() {
		if text, ok := arg.(*string); ok && strings.HasSuffix(*text, ";") {
			s.all = append(s.all, *text)
		}
	}
	return s.UniversalClient.Process(ctx, cmd)
}

// Large steps carry an estimate once the server's clock is known.
func TestLargeStepsGuessTheServersTime(t *testing.T) {
	t.Parallel()
	for _, version := range []sidekiq.Version{sidekiq.V7, sidekiq.V8} {
		f := newFleet(t, sidekiq.Options{Version: version})
		require.NoError(t, f.client.ScriptLoad(f.ctx, lab.Text(f.client, &script.PushScript)).Err(),
			"so that each step is one command")
		plans := &sentPlans{UniversalClient: f.client}
		d := f.through(plans, sidekiq.Options{Version: version})
		behind := strings.Repeat(" behind", 20)
		payload := `{"class":"W","args":[],"queue":"q","jid":"j"}`
		finished := []byte(payload + behind)
		jobs := []sidekiq.Job{{Payload: finished[:len(payload)]}, {Class: "W", Queue: "q", In: time.Hour}}
		for range 100 {
			jobs = append(jobs, sidekiq.Job{Class: "W", Queue: "q"})
		}
		for i := range 3 {
			before := f.now()
			_, err := d.PushBulk(f.ctx, jobs)
			require.NoError(t, err)
			after := f.now()
			require.Equal(t, i > 0, strings.Contains(plans.all[i], ":100:~"), plans.all[i])
			got := f.queue("q")
			require.Len(t, got, 101)
			for _, p := range got {
				at := stampTime(t, version, stamps.FindAllStringSubmatch(p[strings.Index(p, `"enqueued_at"`):],
					-1)[0][2])
				require.False(t, at.Before(before.Add(-6*time.Millisecond)) || at.After(after.Add(6*time.Millisecond)),
					p)
				require.True(t, json.Valid([]byte(p)), p)
			}
			require.NoError(t, f.client.Del(f.ctx, f.key("queue:q")).Err())
		}
		require.Equal(t, payload+behind, string(finished), "bytes of the caller were written to")
	}
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}
