package limit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	limitscript "github.com/luatomic/luatomic/gen/limit"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/limit"
	"github.com/luatomic/luatomic/lua"
)

// clocked runs the scripts at a clock of its own, in us. Their keys do not expire during a test.
type clocked struct {
	t   require.TestingT
	ctx testing.TB
	c   *redis.Client
	now int64
}

// start is a time whose fraction has leading zeros.
const start = int64(1_732_280_000_000_007)

func newClocked(t testing.TB, c *redis.Client) *clocked { return &clocked{t, t, c, start} }

func (s *clocked) run(script *lua.Script, keys []string, args ...any) any {
	text := lab.Text(s.c, script)
	fixed := strings.Replace(text, "redis.call('TIME')", fmt.Sprintf("{'%d', '%d'}", s.now/1e6, s.now%1e6), 1)
	require.NotEqual(s.t, text, fixed)
	const life = "math.floor(stays / rate / 1000) + "
	fixed = strings.ReplaceAll(fixed, life+"1", life+"3600000")
	reply, err := s.c.Eval(s.ctx.Context(), fixed, keys, args...).Result()
	require.NoError(s.t, err)
	return reply
}

// rated is one limit of a clocked server.
type rated struct {
	key                     string
	token, rate, room, most int64
}

func newRated(t require.TestingT, key string, r limit.Rate, maxDebt time.Duration) *rated {
	out := &rated{key: key}
	var err error
	out.token, out.rate, out.room, out.most, err = r.Parts(maxDebt)
	require.NoError(t, err)
	return out
}

func (r *rated) row(n int64) []any { return []any{r.rate, n * r.token, r.room, r.most} }

// allow returns whether n tokens are passed, and the debt after the call.
func (s *clocked) allow(r *rated, n int64) (bool, int64) {
	debt := s.run(&limitscript.AllowScript, []string{r.key}, r.row(n)...).(int64)
	if debt < 0 {
		return false, -1 - debt
	}
	return true, debt
}
