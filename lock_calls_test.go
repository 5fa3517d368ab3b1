package luatomic_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/lua"
)

// record makes the text of a lock.
func record(fence int64, waiting int, owner string, start, length int64) string {
	return fmt.Sprintf("%d %d %s %d %d 0 - note", fence, waiting, owner, start, length)
}

// lockOf prepares a lock with that text and, if there are any, entries in its queue.
func lockOf(text string, entries ...string) func(context.Context, *redis.Client, string) error {
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

// entryOf makes an entry that nobody listens for.
func entryOf(owner string) string { return owner + " 5000 0 nobody\n" + owner }

var (
	heldByMe    = record(7, 0, "me", int64(future)*1000, 1000)
	wantedMe    = record(7, 1, "me", int64(future)*1000, 1000)
	heldByOther = record(7, 0, "other", int64(future)*1000, 1000)
	lapsedOther = record(7, 1, "other", int64(past)*1000, 1000)
)

// lockCalls are the calls of scriptCalls that concern locks.
func lockCalls() []scriptCall {
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
	return []scriptCall{
		{&gen.LockTryScript, try, none, nil},
		{&gen.LockTryScript, try, lockOf(record(7, 0, "-", 0, 0)), nil},
		{&gen.LockTryScript, try, lockOf(heldByOther), nil},
		{&gen.LockAcquireScript, acquire(""), none, nil},
		{&gen.LockAcquireScript, acquire(""), lockOf(lapsedOther, entryOf("x"), entryOf("y")), nil},
		{&gen.LockAcquireScript, acquire(entryOf("me")), lockOf(heldByOther), nil},
		{&gen.LockAcquireScript, acquire(entryOf("me")), lockOf(lapsedOther, entryOf("x"), entryOf("y")), nil},
		{&gen.LockExtendScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.LockExtend(ctx, c, gen.LockExtendParams{Lock: "lock:{" + k + "}", Owner: "me", TTL: time.Minute, Keep: time.Hour}))
		}, lockOf(heldByMe), nil},
		{&gen.LockNoteScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.LockNote(ctx, c, gen.LockNoteParams{Lock: "lock:{" + k + "}", Owner: "me", Note: "new"}))
		}, lockOf(heldByMe), nil},
		{&gen.LockFenceScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			return show(gen.LockFence(ctx, c, gen.LockFenceParams{Lock: "lock:{" + k + "}", Owner: "me", Least: 8}))
		}, lockOf(heldByMe), nil},
		{&gen.LockReleaseScript, release, lockOf(heldByMe), unread},
		{&gen.LockReleaseScript, release, lockOf(wantedMe, entryOf("x"), entryOf("y")), nil},
		{&gen.LockForceScript, force("-"), lockOf(wantedMe, entryOf("x")), nil},
		{&gen.LockForceScript, force("me"), lockOf(record(7, 1, "other", int64(future)*1000, 1000), entryOf("x")), nil},
		{&gen.LockInfoScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.LockInfo(ctx, c, gen.LockInfoParams{Lock: "lock:{" + k + "}", Queue: "lockq:{" + k + "}", Max: 10})
			return fmt.Sprint(v.Held, v.Fence, v.Owner, v.Note, v.Waiting, v.Entries), err
		}, lockOf(wantedMe, entryOf("x")), nil},
		{&gen.LockAcquireAllScript, func(ctx context.Context, c lua.Client, k string) (string, error) {
			v, err := gen.LockAcquireAll(ctx, c, gen.LockAcquireAllParams{Locks: []string{"lock:{" + k + "}", "lock:{" + k + "}:2"}, Owner: "me", TTL: time.Minute})
			return fmt.Sprint(v.Blocked), err
		}, lockOf(lapsedOther), nil},
	}
}
