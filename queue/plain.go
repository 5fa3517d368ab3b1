package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/lua"
)

// typed is a key and the type of its value.
type typed struct{ key, kind string }

// plainError describes the refusal of a plain command as the runtime describes the refusal of a script: the error of a
// wrong type names the key and both types, if a search of at most a second finds them. Other errors stay as they are.
func plainError(ctx context.Context, client lua.Client, err error, keys ...typed) error {
	if _, script := err.(*lua.Error); script || !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, k := range keys {
		if held, failed := client.Type(ctx, k.key).Result(); failed == nil && held != "none" && held != k.kind {
			return fmt.Errorf("%w: key %q holds a %s, not a %s: %w", lua.ErrWrongType, k.key, held, k.kind, err)
		}
	}
	return fmt.Errorf("%w: %w", lua.ErrWrongType, err)
}

// typed returns the keys that an audit reads, with their types.
func (q *Queue) typed() []typed {
	k := &q.keys
	return []typed{
		{k.Ready, "list"}, {k.Scheduled, "zset"}, {k.Bodies, "hash"}, {k.Leases, "zset"}, {k.Failures, "hash"},
		{k.Dead, "zset"}, {k.Unique, "hash"}, {k.Expiry, "zset"}, {k.Control, "hash"}, {k.Options, "hash"},
		{k.Finished, "zset"},
	}
}
