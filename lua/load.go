package lua

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// loadAndRun sends SCRIPT LOAD and EVALSHA in one pipeline to the node that owns the call's keys. It avoids EVAL: since
// 7.4 a server may evict a script that came by EVAL, and 8.0 evicts it even after a later SCRIPT LOAD. EVAL is used
// only if the owner is unknown (an AutoPipeliner), if SCRIPT LOAD is refused or reaches another server than the call (a
// proxy), or if each pipeline would reach the same replica.
func (c *Call) loadAndRun(ctx context.Context, client Client) {
	node, err := owner(ctx, client, c.firstKey())
	if err != nil {
		c.lost(ctx, err)
		return
	}
	byText := node == nil || c.byText() || c.replica
	if !byText {
		_, _ = loadAndSend(ctx, client, node, []*Call{c}, 0, 0)
		byText = c.noLoad && redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT")
	}
	if byText {
		_ = client.Process(ctx, c.prepare(ctx, true))
	}
}

// reload is the number of calls after which a script is loaded again: a SCRIPT FLUSH between two commands of a long
// pipeline costs at most that many calls.
const reload = 64

// loadAndSend makes one attempt for the calls of a node, together with their scripts. With replicas it waits for them,
// and returns how many have the writes.
func loadAndSend(
	ctx context.Context, client Client, node *redis.Client, calls []*Call, replicas int, timeout time.Duration,
) (acked int, err error) {
	pipe := node.Pipeline()
	loads := make([]*redis.StringCmd, len(calls))
	since := make(map[Text]int)
	var load *redis.StringCmd
	for i, c := range calls {
		text := c.file()
		if since[text]%reload == 0 {
			load = pipe.ScriptLoad(ctx, text.String())
		}
		since[text]++
		loads[i] = load
		_ = pipe.Process(ctx, c.prepare(ctx, false))
	}
	var waited *redis.IntCmd
	if replicas > 0 {
		waited = redis.NewIntCmd(ctx, "WAIT", replicas, max(timeout.Milliseconds(), 1)) // 0 is for ever
		_ = pipe.Process(ctx, waited)
	}
	_, err = pipe.Exec(ctx)
	blame(calls, err)
	var elsewhere []*Script
	for i, c := range calls {
		c.learn(loads[i], err)
		if c.redirected() && !slices.Contains(elsewhere, c.script) {
			elsewhere = append(elsewhere, c.script)
		}
	}
	if len(elsewhere) > 0 {
		// The slot is moving, and the node that it moves to may lack the script. A failure to load shows in the next
		// attempt.
		_ = Preload(ctx, client, elsewhere...)
	}
	if waited == nil {
		return 0, nil
	}
	return int(waited.Val()), waited.Err()
}

// lost records an attempt that was not sent because no node is known.
func (c *Call) lost(ctx context.Context, err error) {
	c.prepare(ctx, false).SetErr(fmt.Errorf("find the node: %w", err))
}

// learn records whether another SCRIPT LOAD can help. A temporary refusal, such as LOADING, is no reason for EVAL.
func (c *Call) learn(load *redis.StringCmd, failed error) {
	err := loaded(load, c.file(), failed)
	var reply redis.Error
	switch {
	case errors.Is(err, errDigest):
		if redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") {
			c.cmd.SetErr(err)
		}
	case errors.As(err, &reply):
		var e Error
		classifyReply(c.script, c.file(), &e, reply.Error())
		c.noLoad = !e.transient
	case err == nil && c.failedLoads < maxFailedLoads && redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT"):
		c.failedLoads++
	}
}

// After maxFailedLoads loads that did not help, the cause is not a passing one, such as a concurrent SCRIPT FLUSH, and
// the call is sent by EVAL.
const maxFailedLoads = 3

// byText reports whether only EVAL can help.
func (c *Call) byText() bool { return c.noLoad || c.failedLoads >= maxFailedLoads }

func (c *Call) redirected() bool {
	_, moved := redis.IsMovedError(c.cmd.Err())
	_, ask := redis.IsAskError(c.cmd.Err())
	return moved || ask
}

// owner returns the node that serves the key, or nil if the client cannot name it.
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

// Preload loads the scripts on every node that the client reaches: all masters and replicas of a cluster, all shards of
// a ring except those that its heartbeat has found down. A script with a guard is loaded twice, alone and behind it. If
// the user of a program may run neither EVAL nor SCRIPT LOAD, another user must call Preload once after each start or
// failover of a server. It continues when a node fails and returns all failures joined.
func Preload(ctx context.Context, client Client, scripts ...*Script) error {
	if g, ok := client.(*guarded); ok {
		client = g.Client
	}
	load := func(ctx context.Context, node *redis.Client) error { return preload(ctx, node, scripts) }
	switch c := client.(type) {
	case *redis.Client:
		return load(ctx, c)
	case interface {
		ForEachShard(context.Context, func(context.Context, *redis.Client) error) error
	}:
		return forEach(ctx, c.ForEachShard, load)
	}
	return fmt.Errorf("preload: a %T does not list its nodes; pass the Client, ClusterClient or Ring under it", client)
}

func preload(ctx context.Context, node *redis.Client, scripts []*Script) error {
	type loading struct {
		name string
		text Text
		cmd  *redis.StringCmd
	}
	pipe := node.Pipeline()
	var all []loading
	for _, s := range scripts {
		for _, guarded := range []bool{false, true} {
			if text := s.file(guarded); text.Source != nil {
				all = append(all, loading{title(s.Name, guarded), text, pipe.ScriptLoad(ctx, text.String())})
			}
		}
	}
	_, failed := pipe.Exec(ctx)
	var errs []error
	for _, l := range all {
		if err := loaded(l.cmd, l.text, failed); err != nil {
			errs = append(errs, fmt.Errorf("preload %s on %s: %w", l.name, node.Options().Addr, err))
		}
	}
	return errors.Join(errs...)
}

// errDigest reports that a script's digest does not match its text.
var errDigest = errors.New("wrong digest")

// loaded checks the reply to SCRIPT LOAD. When a pipeline finds no connection, go-redis leaves its commands without an
// error: then failed is the error.
func loaded(cmd *redis.StringCmd, text Text, failed error) error {
	sha, err := cmd.Result()
	switch {
	case err == nil && sha == "":
		return failed
	case err == nil && sha != text.SHA:
		cure := "run go generate"
		if strings.Contains(*text.Source, "\r\n") {
			cure = "its lines end with CRLF: tell git *.lua -text and check it out anew, or run go generate if they " +
				"shall stay so"
		}
		return fmt.Errorf("%w: the server computed %s, the generated code has %s: %s", errDigest, sha, text.SHA, cure)
	}
	return err
}

// forEach visits every node, although walk itself stops at an error.
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
