package scriptcase

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	limitscript "github.com/luatomic/luatomic/gen/limit"
	"github.com/luatomic/luatomic/lua"
)

// LimitScripts are the scripts of limits.
var LimitScripts = []*lua.Script{
	&limitscript.AllowScript, &limitscript.AllowAllScript, &limitscript.LevelScript, &limitscript.PeekScript,
	&limitscript.ReserveScript, &limitscript.SettleScript,
}

// LimitOf prepares two limits: of each the time at which it is whole, in us from now. The rate of the calls is 7 parts
// a us.
func LimitOf(one, two time.Duration) func(context.Context, *redis.Client, string) error {
	return func(ctx context.Context, c *redis.Client, k string) error {
		now, err := c.Time(ctx).Result()
		for i, ahead := range []time.Duration{one, two} {
			if ahead > 0 && err == nil {
				record := fmt.Sprintf("%d 3 7 %d 0 0", now.Add(ahead).UnixMicro(), now.UnixMicro())
				err = c.Set(ctx, fmt.Sprintf("limit:{%s}:%d", k, i+1), record, time.Hour).Err()
			}
		}
		return err
	}
}

// limitCalls are the calls of scripts of limits. A token is a minute.
func limitCalls() []ScriptCall {
	const token = 7 * 60_000_000
	const room, most = 100 * token, 200 * token
	keys := func(k string) []string { return []string{"limit:{" + k + "}:1", "limit:{" + k + "}:2"} }
	allow := func(ctx context.Context, c lua.Client, k string) (string, error) {
		debt, err := limitscript.Allow(ctx, c, limitscript.AllowParams{
			Limit: keys(k)[0], Rate: 7, Cost: 2 * token, Room: room, Most: most,
		})
		return fmt.Sprint(debt > 0), err
	}
	all := func(ctx context.Context, c lua.Client, k string) (string, error) {
		row := limitscript.AllowAllRow{Rate: 7, Cost: 2 * token, Room: room, Most: most}
		r, err := limitscript.AllowAll(ctx, c, limitscript.AllowAllParams{
			Limits: keys(k), Rows: []limitscript.AllowAllRow{row, row},
		})
		return fmt.Sprint(r.Allowed), err
	}
	peek := func(ctx context.Context, c lua.Client, k string) (string, error) {
		row := limitscript.PeekRow{Rate: 7, Room: room, Most: most}
		r, err := limitscript.Peek(ctx, c, limitscript.PeekParams{
			Limits: keys(k), Rows: []limitscript.PeekRow{row, row},
		})
		return fmt.Sprint(len(r)), err
	}
	reserve := func(ctx context.Context, c lua.Client, k string) (string, error) {
		row := limitscript.ReserveRow{Rate: 7, Cost: 2 * token, Room: room, Most: most}
		r, err := limitscript.Reserve(ctx, c, limitscript.ReserveParams{
			Receipt: "limitr:{" + k + "}:t", Limits: keys(k), Wait: 1_000_000_000, Keep: time.Minute,
			Rows: []limitscript.ReserveRow{row, row},
		})
		return r.State.String(), err
	}
	settle := func(ctx context.Context, c lua.Client, k string) (string, error) {
		row := limitscript.SettleRow{Rate: 7, Back: token, Most: most}
		r, err := limitscript.Settle(ctx, c, limitscript.SettleParams{
			Receipt: "limitr:{" + k + "}:t", Limits: keys(k), Used: "1", Keep: time.Minute,
			Rows: []limitscript.SettleRow{row, row},
		})
		return r.String(), err
	}
	level := func(debt int64) func(context.Context, lua.Client, string) (string, error) {
		return func(ctx context.Context, c lua.Client, k string) (string, error) {
			return "", limitscript.Level(ctx, c, limitscript.LevelParams{Limit: keys(k)[0], Rate: 7, Debt: debt})
		}
	}
	reserved := func(ctx context.Context, c *redis.Client, k string) error {
		_, err := reserve(ctx, c, k)
		return err
	}
	return []ScriptCall{
		{&limitscript.AllowScript, allow, None, nil},
		{&limitscript.AllowScript, allow, LimitOf(time.Hour, 0), nil},
		{&limitscript.AllowAllScript, all, LimitOf(time.Hour, 0), nil},
		{&limitscript.AllowAllScript, all, LimitOf(time.Hour, 2*time.Hour), nil},
		{&limitscript.PeekScript, peek, LimitOf(time.Hour, 0), nil},
		{&limitscript.ReserveScript, reserve, None, nil},
		{&limitscript.ReserveScript, reserve, LimitOf(time.Hour, 100*time.Minute), nil},
		{&limitscript.SettleScript, settle, reserved, nil},
		{&limitscript.SettleScript, settle, None, []string{"limit"}},
		{&limitscript.LevelScript, level(50 * token), LimitOf(time.Hour, 0), nil},
		{&limitscript.LevelScript, level(0), LimitOf(time.Hour, 0), nil},
	}
}
