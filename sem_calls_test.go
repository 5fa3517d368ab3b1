package luatomic_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// What is no time in a semaphore is scored by this and its value.
const semBase = 1e15

// semOf prepares a semaphore of that limit with holders, a map of tokens to the ends
// of their leases, and entries in its queue.
func semOf(limit int, holders map[string]float64, entries ...string) func(context.Context, *redis.Client, string) error {
	return func(ctx context.Context, c *redis.Client, k string) error {
		used := 0.0
		members := []redis.Z{{Score: semBase + float64(limit), Member: "limit"}, {Score: 7, Member: "fence"}}
		for token, end := range holders {
			members = append(members, redis.Z{Score: end, Member: token})
			if end > 0 {
				used += semWeight(token)
			}
		}
		members = append(members, redis.Z{Score: semBase + used, Member: "used"})
		members[1].Score = semBase * 2 // a fence from a clock that was ahead
		err := c.ZAdd(ctx, "sem:{"+k+"}", members...).Err()
		for i, e := range entries {
			err = errors.Join(err, c.ZAdd(ctx, "semq:{"+k+"}", redis.Z{Score: float64(i + 1), Member: e}).Err())
		}
		if len(entries) > 0 {
			err = errors.Join(err, c.Expire(ctx, "semq:{"+k+"}", time.Hour).Err())
		}
		return errors.Join(err, c.Expire(ctx, "sem:{"+k+"}", time.Hour).Err())
	}
}

// semWeight is the weight of a permit; 0 for any other member.
func semWeight(member string) float64 {
	_, text, ok := strings.Cut(member, ":")
	if !ok || strings.Contains(member, "\n") {
		return 0
	}
	n, _ := strconv.ParseFloat(text, 64)
	return n
}

// standing makes an entry that is heard on a channel.
func standing(token, channel string) string {
	return token + " 5000 0 " + channel + "\nnote of " + token
}

// semCalls are the calls of scriptCalls that concern semaphores.
func semCalls() []scriptCall {
	name := func(k string) (string, string) { return "sem:{" + k + "}", "semq:{" + k + "}" }
	acquire := func(entry string) func(context.Context, lua.Client, string) (string, error) {
		return func(ctx context.Context, c lua.Client, k string) (string, error) {
			permits, queue := name(k)
			v, err := gen.SemAcquire(ctx, c, gen.SemAcquireParams{
				Permits: permits, Queue: queue, Owner: "p.me:2", Limit: 5, TTL: time.Minute, Entry: entry, Note: "mine",
			})
			return fmt.Sprint(v.Acquired, v.Limit), err
		}
	}
	release := func(ctx context.Context, c lua.Client, k string) (string, error) {
		permits, queue := name(k)
		v, err := gen.SemRelease(ctx, c, gen.SemReleaseParams{Permits: permits, Queue: queue, Owner: "p.me:2", Note: "mine", Inbox: "inbox:"})
		return fmt.Sprint(v), err
	}
	resize := func(ctx context.Context, c lua.Client, k string) (string, error) {
		permits, queue := name(k)
		_, err := gen.SemResize(ctx, c, gen.SemResizeParams{Permits: permits, Queue: queue, Size: 5})
		return "", err
	}
	mine := map[string]float64{"p.me:2": future, "p.me:2\nmine": future, "p.old:1": past, "p.gone:1": -past}
	full := map[string]float64{"p.a:3": future, "p.b:2": future}
	lapsed := map[string]float64{"p.a:3": past, "p.a:3\nn": past, "p.b:2": future}
	dead := []string{standing("p.x:1", "nobody"), standing("p.y:4", "nobody")}
	return []scriptCall{
		{&gen.SemAcquireScript, acquire(""), none, nil},
		{&gen.SemAcquireScript, acquire(""), semOf(5, lapsed, dead...), nil},
		{&gen.SemAcquireScript, acquire(standing("p.me:2", "nobody")), semOf(5, full), nil},
		{&gen.SemAcquireScript, acquire(standing("p.me:2", "nobody")), semOf(5, lapsed, dead...), nil},
		{&gen.SemExtendScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			permits, _ := name(k)
			v, err := gen.SemExtend(ctx, c, gen.SemExtendParams{Permits: permits, Owner: "p.me:2", TTL: time.Minute, Note: "mine"})
			return fmt.Sprint(v), err
		}, semOf(5, mine), nil},
		{&gen.SemReleaseScript, release, semOf(5, mine), nil},
		{&gen.SemReleaseScript, release, semOf(5, mine, dead...), nil},
		{&gen.SemReleaseScript, release, none, nil},
		{&gen.SemResizeScript, resize, semOf(4, full, dead...), nil},
		{&gen.SemInfoScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			permits, queue := name(k)
			v, err := gen.SemInfo(ctx, c, gen.SemInfoParams{Permits: permits, Queue: queue, Max: 10, Waiters: 10})
			return fmt.Sprint(v.Limit, v.Used, v.Fence, v.Waiting, v.Members, v.Entries), err
		}, semOf(5, mine, dead...), nil},
	}
}

// semCases are those where the ones who wait live.
func semCases() []failpointCase {
	var cases []failpointCase
	heard := func(call scriptCall, name string, prepare func(context.Context, *redis.Client, string) error) {
		cases = append(cases, failpointCase{call.script.Name + "/" + name, func(ctx context.Context, t *testing.T, c *redis.Client, k string) error {
			return errors.Join(prepare(ctx, c, k), subscribe(ctx, t, c, "c:"+k))
		}, call.run, nil})
	}
	calls := make(map[string]scriptCall)
	for _, call := range semCalls() {
		calls[call.script.Name] = call // the last one, which waits
	}
	alive := func(k string) []string {
		return []string{standing("p.x:1", "c:"+k), standing("p.dead:1", "nobody"), standing("p.y:1", "c:"+k), standing("p.heavy:5", "c:"+k)}
	}
	with := func(limit int, holders map[string]float64, first ...string) func(context.Context, *redis.Client, string) error {
		return func(ctx context.Context, c *redis.Client, k string) error {
			return semOf(limit, holders, append(first, alive(k)...)...)(ctx, c, k)
		}
	}
	mine := map[string]float64{"p.me:2": future, "p.me:2\nmine": future, "p.old:3": past}
	heard(calls["sem_acquire"], "heard", with(5, map[string]float64{"p.a:3": past, "p.b:1": future}))
	heard(calls["sem_acquire"], "first", with(5, map[string]float64{"p.a:3": past, "p.b:1": future}, standing("p.me:2", "nobody")))
	heard(calls["sem_acquire"], "again", with(5, mine, standing("p.me:2", "nobody")))
	heard(calls["sem_release"], "heard", with(5, mine))
	heard(calls["sem_release"], "twice", with(5, mine, standing("p.old:3", "nobody"), standing("p.gone:1", "nobody")))
	heard(calls["sem_resize"], "heard", with(2, mine))
	return cases
}

// checkPermits wants what is used to be what is held, never more than the limit, and
// a repeat a moment later to come to the same answer.
func (s *sweep) checkPermits(fault string, broken contents) {
	s.permitsAddUp(fault, broken)
	want, _, err := s.eval(0, s.clock.Add(5*time.Millisecond))
	require.NoError(s.t, err, "repeat after %s", fault)
	s.permitsAddUp("repeat after "+fault, s.read())
	reply, ok := want.([]any)
	if !ok {
		reply = []any{want}
	}
	first, ok := s.reply.([]any)
	if !ok {
		first = []any{s.reply}
	}
	if s.script.Name != "sem_resize" {
		require.Equal(s.t, first[0], reply[0], "repeat after %s", fault)
	}
}

func (s *sweep) permitsAddUp(when string, now contents) {
	members, _ := now.values["sem:{"+s.k+"}"].(map[string]float64)
	before, _ := s.before.values["sem:{"+s.k+"}"].(map[string]float64)
	sum := heldIn(members)
	if used, ok := members["used"]; ok {
		require.Equal(s.t, sum, used-semBase, "%s: %v", when, members)
	} else {
		require.Zero(s.t, sum, when)
	}
	if limit, ok := members["limit"]; ok {
		require.LessOrEqual(s.t, sum, max(limit-semBase, heldIn(before)), "%s: %v", when, members)
	}
}

// heldIn is the sum of the weights that count as held.
func heldIn(members map[string]float64) (sum float64) {
	for member, score := range members {
		if score > 0 && score < semBase {
			sum += semWeight(member)
		}
	}
	return sum
}
