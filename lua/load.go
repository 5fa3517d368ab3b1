package lua

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// loadAndRun sends SCRIPT LOAD and EVALSHA in one pipeline to the node that owns
// the call's keys. Not EVAL: since 7.4 a server may evict a script that came by
// EVAL, and 8.0 evicts it even after a later SCRIPT LOAD. EVAL is what is left
// where the owner is not known (an AutoPipeliner, a proxy) or SCRIPT LOAD is
// refused.
func (c *Call) loadAndRun(ctx context.Context, client Client) error {
	node, err := owner(ctx, client, c.firstKey())
	if err != nil {
		return err
	}
	if node != nil && !c.noLoad {
		pipe := node.Pipeline()
		load := pipe.ScriptLoad(ctx, *c.script.Source)
		cmd := c.prepare(ctx, false)
		_ = pipe.Process(ctx, cmd)
		_, _ = pipe.Exec(ctx) // each command keeps its own error
		if c.noLoad = c.noLoad || isReply(load.Err()); !c.noLoad {
			return cmd.Err()
		}
	}
	return client.Process(ctx, c.prepare(ctx, true))
}

// isReply reports whether err is a server's answer: SCRIPT LOAD was refused.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// owner is the node that serves the key; nil when the client does not tell.
func owner(ctx context.Context, client Client, key string) (*redis.Client, error) {
	switch c := client.(type) {
	case *redis.Client:
		return c, nil
	case interface {
		MasterForKey(context.Context, string) (*redis.Client, error)
	}:
		return c.MasterForKey(ctx, key)
	case interface {
		GetShardClientForKey(string) (*redis.Client, error)
	}:
		return c.GetShardClientForKey(key)
	}
	return nil, nil
}

// Preload loads the scripts on every node that the client reaches: all masters
// and replicas of a cluster, all shards of a ring. Programs whose user may run
// neither EVAL nor SCRIPT LOAD need it once, from a user that may, after each
// start or failover of a server. It goes on when a node fails and returns all
// failures joined.
func Preload(ctx context.Context, client Client, scripts ...*Script) error {
	load := func(ctx context.Context, node *redis.Client) error {
		pipe := node.Pipeline()
		cmds := make([]*redis.StringCmd, len(scripts))
		for i, s := range scripts {
			cmds[i] = pipe.ScriptLoad(ctx, *s.Source)
		}
		_, _ = pipe.Exec(ctx) // each command keeps its own error
		var errs []error
		for i, s := range scripts {
			if err := loaded(cmds[i], s); err != nil {
				errs = append(errs, fmt.Errorf("preload %s on %s: %w", s.Name, node.Options().Addr, err))
			}
		}
		return errors.Join(errs...)
	}
	switch c := client.(type) {
	case *redis.Client:
		return load(ctx, c)
	case interface {
		ForEachShard(context.Context, func(context.Context, *redis.Client) error) error
	}:
		return forEach(ctx, c.ForEachShard, load)
	}
	return fmt.Errorf("preload: a %T does not tell its nodes; pass the Client, ClusterClient or Ring under it", client)
}

func loaded(cmd *redis.StringCmd, s *Script) error {
	sha, err := cmd.Result()
	if err == nil && sha != s.SHA {
		err = fmt.Errorf("the server computed digest %s, the generated code has %s: run go generate", sha, s.SHA)
	}
	return err
}

// forEach visits every node, although the walk itself stops at an error.
func forEach(
	ctx context.Context,
	walk func(context.Context, func(context.Context, *redis.Client) error) error,
	load func(context.Context, *redis.Client) error,
) error {
	failed := make(chan error, 1)
	failed <- nil
	err := walk(ctx, func(ctx context.Context, node *redis.Client) error {
		err := load(ctx, node)
		failed <- errors.Join(<-failed, err)
		return nil
	})
	return errors.Join(<-failed, err)
}
