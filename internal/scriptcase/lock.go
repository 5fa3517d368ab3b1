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
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lua"
)

// Record returns the text of a lock.
func Record(fence int64, waiting int, owner string, start, length int64) string {
	return fmt.Sprintf("%d %d %s %d %d 0 - note", fence, waiting, owner, start, length)
}

// LockOf prepares a lock with that text and, if there are any, entries in its queue.
func LockOf(text string, entries ...string) func(context.Context, *redis.Client, string) error {
	return func(ctx context.Context, c *redis.Client, k string) error {
		for i, e := range entries {
			if err := c.ZAdd(ctx, "lockq:{"+k+"}", redis.Z{Score: float64(i + 1), Member: e}).Err(); err != nil {
				return err
			}
		}
		if len(entries) > 0 {
			if err := c.Expire(ctx, "lockq:{"+k+"}", time.Hour).Err(); err != nil {
				return err
			}
		}
		return c.Set(ctx, "lock:{"+k+"}", text, time.Hour).Err()
	}
}

// EntryOf returns an entry without a subscriber.
func EntryOf(owner string) string { return owner + " 5000 0 nobody\n" + owner }

var (
	HeldByMe    = Record(7, 0, "me", int64(lab.Future)*1000, 1000)
	WantedMe    = Record(7, 1, "me", int64(lab.Future)*1000, 1000)
	HeldByOther = Record(7, 0, "other", int64(lab.Future)*1000, 1000)
	LapsedOther = Record(7, 1, "other", int64(lab.Past)*1000, 1000)
)

// LockCalls are the calls of lock scripts.
func LockCalls() []ScriptCall {
	show := func(v any, err error) (string, error) { return fmt.Sprintf("%+v", v), err }
	acquire := func(entry string) func(context.Context, lua.Client, string) (string, error) {
		return func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.LockAcquire(ctx, c, gen.LockAcquireParams{
				Lock: "lock:{" + k + "}", Queue: "lockq:{" + k + "}", Owner: "me", TTL: time.Minute, Keep: time.Hour, Entry: entry,
			})
			return fmt.Sprint(v.Acquired), err
		}
	}
	release := func(ctx context.Context, c lua.Client, k string) (string, error) {
		return show(gen.LockRelease(ctx, c, gen.LockReleaseParams{Lock: "lock:{" + k + "}", Queue: "lockq:{" + k + "}", Owner: "me", Keep: time.Hour}))
	}
	force := func(owner string) func(context.Context, lua.Client, string) (string, error) {
		return func(ctx context.Context, c lua.Client, k string) (string, error) {
			_, err := gen.LockForce(ctx, c, gen.LockForceParams{
				Lock: "lock:{" + k + "}", Queue: "lockq:{" + k + "}", Fence: 7, Owner: owner, TTL: time.Minute, Inbox: "inbox:",
			})
			return "", err
		}
	}
	unread := []string{"queue"}
	try := func(ctx context.Context, c lua.Client, k string) (string, error) {
		v, err := gen.LockTry(ctx, c, gen.LockTryParams{Lock: "lock:{" + k + "}", Owner: "me", TTL: time.Minute, Keep: time.Hour})
		return v.State.String(), err
	}
	return []ScriptCall{
		{&gen.LockTryScript, try, None, nil},
		{&gen.LockTryScript, try, LockOf(Record(7, 0, "-", 0, 0)), nil},
		{&gen.LockTryScript, try, LockOf(HeldByOther), nil},
		{&gen.LockAcquireScript, acquire(""), None, nil},
		{&gen.LockAcquireScript, acquire(""), LockOf(LapsedOther, EntryOf("x"), EntryOf("y")), nil},
		{&gen.LockAcquireScript, acquire(EntryOf("me")), LockOf(HeldByOther), nil},
		{&gen.LockAcquireScript, acquire(EntryOf("me")), LockOf(LapsedOther, EntryOf("x"), EntryOf("y")), nil},
		{&gen.LockExtendScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.LockExtend(ctx, c, gen.LockExtendParams{Lock: "lock:{" + k + "}", Owner: "me", TTL: time.Minute, Keep: time.Hour}))
		}, LockOf(HeldByMe), nil},
		{&gen.LockNoteScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.LockNote(ctx, c, gen.LockNoteParams{Lock: "lock:{" + k + "}", Owner: "me", Note: "new"}))
		}, LockOf(HeldByMe), nil},
		{&gen.LockFenceScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.LockFence(ctx, c, gen.LockFenceParams{Lock: "lock:{" + k + "}", Owner: "me", Least: 8}))
		}, LockOf(HeldByMe), nil},
		{&gen.LockReleaseScript, release, LockOf(HeldByMe), unread},
		{&gen.LockReleaseScript, release, LockOf(WantedMe, EntryOf("x"), EntryOf("y")), nil},
		{&gen.LockForceScript, force("-"), LockOf(WantedMe, EntryOf("x")), nil},
		{&gen.LockForceScript, force("me"), LockOf(Record(7, 1, "other", int64(lab.Future)*1000, 1000), EntryOf("x")), nil},
		{&gen.LockInfoScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.LockInfo(ctx, c, gen.LockInfoParams{Lock: "lock:{" + k + "}", Queue: "lockq:{" + k + "}", Max: 10})
			return fmt.Sprint(v.Held, v.Fence, v.Owner, v.Note, v.Waiting, v.Entries), err
		}, LockOf(WantedMe, EntryOf("x")), nil},
		{&gen.LockAcquireAllScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.LockAcquireAll(ctx, c, gen.LockAcquireAllParams{Locks: []string{"lock:{" + k + "}", "lock:{" + k + "}:2"}, Owner: "me", TTL: time.Minute})
			return fmt.Sprint(v.Blocked), err
		}, LockOf(LapsedOther), nil},
	}
}

// LockRecord is a parsed lock record.
func LockRecord(t testing.TB, c redis.Cmdable, name string) []string {
	t.Helper()
	text, err := c.Get(t.Context(), "lock:{"+name+"}").Result()
	require.NoError(t, err)
	return strings.SplitN(text, " ", 8)
}

const RecordOwner = 2
