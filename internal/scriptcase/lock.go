package scriptcase

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// Record returns the text of a lock whose afterlife is a second.
func Record(fence int64, sign int, owner string) string {
	return fmt.Sprintf("2 %d %d - %s 0 1000 note", fence, sign, owner)
}

// LockOf prepares a lock with that record, whose lease lasts for the time, and entries in its queue if there are any.
func LockOf(record string, lease time.Duration, entries ...string) func(context.Context, *redis.Client, string) error {
	return func(ctx context.Context, c *redis.Client, k string) error {
		if len(entries) > 0 {
			if err := c.RPush(ctx, "lockq:{"+k+"}", entries).Err(); err != nil {
				return err
			}
			if err := c.Expire(ctx, "lockq:{"+k+"}", time.Hour).Err(); err != nil {
				return err
			}
		}
		// The record of a lease that is over is still there after the afterlife.
		text, life := record, lease+time.Second
		if lease <= 0 {
			text, life = strings.Replace(record, " 1000 ", " 7200000 ", 1), time.Hour
		}
		return c.Set(ctx, "lock:{"+k+"}", text, life).Err()
	}
}

// EntryOf returns an entry of a process without a subscriber.
func EntryOf(owner string) string { return "5000 " + owner + " 0 1000 " + owner }

// Own is the record of a lock from the owner on.
func Own(owner string) string { return " " + owner + " 0 1000 note" }

var (
	HeldByMe    = Record(7, 0, "me")
	WantedMe    = Record(7, 1, "me")
	GrantedMe   = Record(7, 2, "me")
	HeldByOther = Record(7, 0, "other")
	WantedOther = Record(7, 1, "other")
)

// lockCalls are the calls of lock scripts.
func lockCalls() []ScriptCall {
	show := func(v any, err error) (string, error) { return fmt.Sprintf("%+v", v), err }
	acquire := func(entry string) func(context.Context, lua.Client, string) (string, error) {
		return func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.LockAcquire(ctx, c, gen.LockAcquireParams{
				Lock: "lock:{" + k + "}", Queue: "lockq:{" + k + "}", Own: Own("me"), TTL: time.Minute, Entry: entry,
				Channel: "c:" + k + ":",
			})
			return fmt.Sprint(v.Acquired), err
		}
	}
	release := func(ctx context.Context, c lua.Client, k string) (string, error) {
		return show(gen.LockRelease(ctx, c, gen.LockReleaseParams{Lock: "lock:{" + k + "}", Queue: "lockq:{" + k + "}",
			Owner: "me", Whole: HeldByMe, Channel: "c:" + k + ":"}))
	}
	force := func(owner string) func(context.Context, lua.Client, string) (string, error) {
		return func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, err := gen.LockForce(ctx, c, gen.LockForceParams{
				Lock: "lock:{" + k + "}", Queue: "lockq:{" + k + "}", Fence: 7, Owner: owner, Own: Own(owner),
				Life: time.Minute, Channel: "c:" + k + ":",
			})
			return "", err
		}
	}
	try := func(ctx context.Context, c lua.Client, k string) (string, error) {
		v, err := gen.LockTry(ctx, c, gen.LockTryParams{Lock: "lock:{" + k + "}", Own: Own("me"), Life: time.Minute})
		return v.State.String(), err
	}
	return []ScriptCall{
		{&gen.LockTryScript, try, None, nil},
		{&gen.LockTryScript, try, LockOf("2 7 0 - - 0 0 ", time.Hour), nil},
		{&gen.LockTryScript, try, LockOf(HeldByOther, time.Hour), nil},
		{&gen.LockAcquireScript, acquire(""), None, nil},
		{&gen.LockAcquireScript, acquire(""), LockOf(WantedOther, 0, EntryOf("x"), EntryOf("y")), nil},
		{&gen.LockAcquireScript, acquire(EntryOf("me")), LockOf(HeldByOther, time.Hour), nil},
		{&gen.LockAcquireScript, acquire(EntryOf("me")), LockOf(WantedOther, 0, EntryOf("x"), EntryOf("y")), nil},
		{&gen.LockExtendScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.LockExtend(ctx, c, gen.LockExtendParams{Lock: "lock:{" + k + "}", Owner: "me",
				TTL: time.Minute}))
		}, LockOf(GrantedMe, time.Hour, EntryOf("x.1")), nil},
		{&gen.LockLeaveScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.LockLeave(ctx, c, gen.LockLeaveParams{Lock: "lock:{" + k + "}", Queue: "lockq:{" + k + "}",
				Owner: "me", Entry: EntryOf("me"), Channel: "c:" + k + ":"}))
		}, LockOf(WantedMe, time.Hour, EntryOf("x"), EntryOf("me")), nil},
		{&gen.LockNoteScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.LockNote(ctx, c, gen.LockNoteParams{Lock: "lock:{" + k + "}", Owner: "me", Text: "new"}))
		}, LockOf(HeldByMe, time.Hour), nil},
		{&gen.LockFenceScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.LockFence(ctx, c, gen.LockFenceParams{Lock: "lock:{" + k + "}", Owner: "me", Least: 8}))
		}, LockOf(HeldByMe, time.Hour), nil},
		{&gen.LockReleaseScript, release, LockOf(HeldByMe, time.Hour), []string{"queue"}},
		{&gen.LockReleaseScript, release, LockOf(WantedMe, time.Hour, EntryOf("x"), EntryOf("y")), nil},
		{&gen.LockForceScript, force("-"), LockOf(WantedMe, time.Hour, EntryOf("x")), nil},
		{&gen.LockForceScript, force("me"), LockOf(WantedOther, time.Hour, EntryOf("x")), nil},
		{&gen.LockInfoScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.LockInfo(ctx, c, gen.LockInfoParams{Lock: "lock:{" + k + "}", Queue: "lockq:{" + k + "}",
				Max: 10})
			return fmt.Sprint(v.Held, v.Fence, v.Owner, v.Note, v.Waiting, v.Entries), err
		}, LockOf(WantedMe, time.Hour, EntryOf("x")), nil},
		{&gen.LockAcquireAllScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.LockAcquireAll(ctx, c,
				gen.LockAcquireAllParams{Locks: []string{"lock:{" + k + "}", "lock:{" + k + "}:2"}, Own: Own("me"),
					Life: time.Minute})
			return fmt.Sprint(v.Blocked), err
		}, LockOf(WantedOther, 0), nil},
	}
}

// LockRecord is a parsed lock record.
func LockRecord(t testing.TB, c redis.Cmdable, name string) []string {
	t.Helper()
	text, err := c.Get(t.Context(), "lock:{"+name+"}").Result()
	require.NoError(t, err)
	return LockFields(text)
}

// LockFields are the fields of the text of a record.
func LockFields(text string) []string { return strings.SplitN(text, " ", 8) }

// The fields of a record.
const RecordFence, RecordSign, RecordVoid, RecordOwner, RecordAfter = 1, 2, 3, 4, 6
