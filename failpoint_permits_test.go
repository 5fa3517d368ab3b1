package luatomic_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
)

// semCases are the cases with live waiters.
func semCases() []failpointCase {
	var cases []failpointCase
	addCase := func(call scriptcase.ScriptCall, name string, prepare func(context.Context, *redis.Client,
		string) error) {
		cases = append(cases, failpointCase{call.Script.Name + "/" + name,
			func(ctx context.Context, t *testing.T, c *redis.Client, k string) error {
				return errors.Join(prepare(ctx, c, k), lab.Subscribe(ctx, t, c, "c:"+k+":p"))
			}, call.Run, nil})
	}
	calls := make(map[string]scriptcase.ScriptCall)
	for _, call := range scriptcase.SemCalls() {
		calls[call.Script.Name] = call // the last call, which waits
	}
	alive := func(k string) []string {
		return []string{scriptcase.Standing("p.x:1"), scriptcase.Standing("q.dead:1"), scriptcase.Standing("p.y:1"),
			scriptcase.Standing("p.heavy:5")}
	}
	with := func(limit int, holders map[string]float64, first ...string) func(context.Context, *redis.Client,
		string) error {
		return func(ctx context.Context, c *redis.Client, k string) error {
			return scriptcase.SemOf(limit, holders, append(first, alive(k)...)...)(ctx, c, k)
		}
	}
	mine := map[string]float64{"p.me:2": lab.Future, "p.me:2\nmine": lab.Future, "p.old:3": lab.Past}
	addCase(calls["lock_sem_acquire"], "notified", with(5, map[string]float64{"p.a:3": lab.Past, "p.b:1": lab.Future}))
	addCase(calls["lock_sem_acquire"], "first", with(5, map[string]float64{"p.a:3": lab.Past, "p.b:1": lab.Future},
		scriptcase.Standing("p.me:2")))
	addCase(calls["lock_sem_acquire"], "again", with(5, mine, scriptcase.Standing("p.me:2")))
	addCase(calls["lock_sem_release"], "notified", with(5, mine))
	addCase(calls["lock_sem_release"], "twice", with(5, mine, scriptcase.Standing("p.old:3"),
		scriptcase.Standing("p.gone:1")))
	addCase(calls["lock_sem_resize"], "notified", with(2, mine))
	return cases
}

// checkPermits requires that the used weight is the held weight and at most the limit, and that a later retry has the
// same reply.
func (s *sweep) checkPermits(fault string, broken contents) {
	s.permitsAddUp(fault, broken)
	want, _, err := s.eval(0, s.clock.Add(5*time.Millisecond))
	require.NoError(s.t, err, "retry after %s", fault)
	s.permitsAddUp("retry after "+fault, s.read())
	reply, ok := want.([]any)
	if !ok {
		reply = []any{want}
	}
	first, ok := s.reply.([]any)
	if !ok {
		first = []any{s.reply}
	}
	if s.script.Name != "lock_sem_resize" {
		require.Equal(s.t, first[0], reply[0], "retry after %s", fault)
	}
}

func (s *sweep) permitsAddUp(when string, now contents) {
	members, _ := now.values["sem:{"+s.k+"}"].(map[string]float64)
	before, _ := s.before.values["sem:{"+s.k+"}"].(map[string]float64)
	sum := heldIn(members)
	if used, ok := members["used"]; ok {
		require.Equal(s.t, sum, used-scriptcase.SemBase, "%s: %v", when, members)
	} else {
		require.Zero(s.t, sum, when)
	}
	if limit, ok := members["limit"]; ok {
		require.LessOrEqual(s.t, sum, max(limit-scriptcase.SemBase, heldIn(before)), "%s: %v", when, members)
	}
}

// heldIn returns the sum of the held weights.
func heldIn(members map[string]float64) (sum float64) {
	for member, score := range members {
		if score > 0 && score < scriptcase.SemBase {
			sum += scriptcase.SemWeight(member)
		}
	}
	return sum
}
