package scriptcase

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
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
			v, err := lockscript.Acquire(ctx, c, lockscript.AcquireParams{
				Lock: "lock:{" + k + "}", Queue: "lockq:{" + k + "}", Own: Own("me"), TTL: time.Minute, Entry: entry,
				Channel: "c:" + k + ":",
			})
			return fmt.Sprint(v.Acquired), err
		}
	}
	release := func(ctx context.Context, c lua.Client, k string) (string, error) {
		return show(lockscript.Release(ctx, c, lockscript.ReleaseParams{Lock: "lock:{" + k + "}",
			Queue: "lockq:{" + k + "}",
			Owner: "me", Whole: HeldByMe, Channel: "c:" + k + ":"}))
	}
	force := func(owner string) func(context.Context, lua.Client, string) (string, error) {
		return func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, err := lockscript.Force(ctx, c, lockscript.ForceParams{
				Lock: "lock:{" + k + "}", Queue: "lockq:{" + k + "}", Fence: 7, Owner: owner, Own: Own(owner),
				Life: time.Minute, Channel: "c:" + k + ":",
			})
			return "", err
		}
	}
	try := func(ctx context.Context, c lua.Client, k string) (string, error) {
		v, err := lockscript.Try(ctx, c, lockscript.TryParams{Lock: "lock:{" + k + "}", Own: Own("me"),
			Life: time.Minute})
		return v.State.String(), err
	}
	return []ScriptCall{
		{&lockscript.TryScript, try, None, nil},
		{&lockscript.TryScript, try, LockOf("2 7 0 - - 0 0 ", time.Hour), nil},
		{&lockscript.TryScript, try, LockOf(HeldByOther, time.Hour), nil},
		{&lockscript.AcquireScript, acquire(""), None, nil},
		{&lockscript.AcquireScript, acquire(""), LockOf(WantedOther, 0, EntryOf("x"), EntryOf("y")), nil},
		{&lockscript.AcquireScript, acquire(EntryOf("me")), LockOf(HeldByOther, time.Hour), nil},
		{&lockscript.AcquireScript, acquire(EntryOf("me")), LockOf(WantedOther, 0, EntryOf("x"), EntryOf("y")), nil},
		{&lockscript.ExtendScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(lockscript.Extend(ctx, c, lockscript.ExtendParams{Lock: "lock:{" + k + "}", Owner: "me",
				TTL: time.Minute}))
		}, LockOf(GrantedMe, time.Hour, EntryOf("x.1")), nil},
		{&lockscript.LeaveScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(lockscript.Leave(ctx, c, lockscript.LeaveParams{Lock: "lock:{" + k + "}",
				Queue: "lockq:{" + k + "}",
				Owner: "me", Entry: EntryOf("me"), Channel: "c:" + k + ":"}))
		}, LockOf(WantedMe, time.Hour, EntryOf("x"), EntryOf("me")), nil},
		{&lockscript.NoteScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(lockscript.Note(ctx, c, lockscript.NoteParams{Lock: "lock:{" + k + "}", Owner: "me",
				Text: "new"}))
		}, LockOf(HeldByMe, time.Hour), nil},
		{&lockscript.FenceScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(lockscript.Fence(ctx, c, lockscript.FenceParams{Lock: "lock:{" + k + "}", Owner: "me",
				Least: 8}))
		}, LockOf(HeldByMe, time.Hour), nil},
		{&lockscript.ReleaseScript, release, LockOf(HeldByMe, time.Hour), []string{"queue"}},
		{&lockscript.ReleaseScript, release, LockOf(WantedMe, time.Hour, EntryOf("x"), EntryOf("y")), nil},
		{&lockscript.ForceScript, force("-"), LockOf(WantedMe, time.Hour, EntryOf("x")), nil},
		{&lockscript.ForceScript, force("me"), LockOf(WantedOther, time.Hour, EntryOf("x")), nil},
		{&lockscript.InfoScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := lockscript.Info(ctx, c, lockscript.InfoParams{Lock: "lock:{" + k + "}",
				Queue: "lockq:{" + k + "}",
				Max:   10})
			return fmt.Sprint(v.Held, v.Fence, v.Owner, v.Note, v.Waiting, v.Entries), err
		}, LockOf(WantedMe, time.Hour, EntryOf("x")), nil},
		{&lockscript.AcquireAllScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := lockscript.AcquireAll(ctx, c,
				lockscript.AcquireAllParams{Locks: []string{"lock:{" + k + "}", "lock:{" + k + "}:2"}, Own: Own("me"),
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
