package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	underway "github.com/luatomic/luatomic/internal/calls"
)

// keyLog notes the keys of every script call. They are all there are: a script touches nothing that is not in its KEYS.
// So the demo can say exactly what it left on a server that it shares, and delete it, without a scan of other keys.
// Calls that outlive their callers, such as the withdrawal of an interrupted acquire, end before that or are refused.
type keyLog struct {
	scripts *underway.Group
	mu      sync.Mutex
	keys    map[string]bool
}

func newKeyLog() *keyLog { return &keyLog{scripts: underway.New(), keys: map[string]bool{}} }

func (k *keyLog) DialHook(next redis.DialHook) redis.DialHook {
	return next
}

func (k *keyLog) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !isScript(cmd) {
			return next(ctx, cmd)
		}
		if !k.scripts.Begin() {
			cmd.SetErr(redis.ErrClosed)
			return redis.ErrClosed
		}
		defer k.scripts.End()
		k.note(cmd)
		return next(ctx, cmd)
	}
}

func (k *keyLog) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !slices.ContainsFunc(cmds, isScript) {
			return next(ctx, cmds)
		}
		if !k.scripts.Begin() {
			for _, cmd := range cmds {
				cmd.SetErr(redis.ErrClosed)
			}
			return redis.ErrClosed
		}
		defer k.scripts.End()
		for _, cmd := range cmds {
			if isScript(cmd) {
				k.note(cmd)
			}
		}
		return next(ctx, cmds)
	}
}

func isScript(cmd redis.Cmder) bool {
	return strings.HasPrefix(cmd.Name(), "eval") && len(cmd.Args()) >= 3
}

func (k *keyLog) note(cmd redis.Cmder) {
	args := cmd.Args()
	text, _ := args[2].(string)
	n, err := strconv.Atoi(text)
	if err != nil || len(args) < 3+n {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, arg := range args[3 : 3+n] {
		switch key := arg.(type) {
		case string:
			k.keys[key] = true
		case *string: // all but the first go by reference
			k.keys[*key] = true
		}
	}
}

func (k *keyLog) all() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]string, 0, len(k.keys))
	for key := range k.keys {
		all = append(all, key)
	}
	slices.Sort(all)
	return all
}

// remaining counts the noted keys that exist: those that expire by themselves and
// those that do not.
func (k *keyLog) remaining(ctx context.Context, client redis.UniversalClient) (expiring, lasting int, err error) {
	for _, key := range k.all() {
		ttl, err := client.PTTL(ctx, key).Result()
		switch {
		case err != nil:
			return 0, 0, err
		case ttl > 0:
			expiring++
		case ttl == -1: // go-redis' value for a key without expiry
			lasting++
		}
	}
	return expiring, lasting, nil
}

// end ends the calls of scripts, and removes what they left.
func (k *keyLog) end(client redis.UniversalClient) error {
	select {
	case <-k.scripts.Close():
	case <-time.After(15 * time.Second):
		return errors.New("a script has not ended")
	}
	return k.remove(client)
}

// remove deletes the noted keys and nothing else, also after an interrupt.
func (k *keyLog) remove(client redis.UniversalClient) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	for _, key := range k.all() {
		if err := client.Unlink(ctx, key).Err(); err != nil {
			return err
		}
	}
	return nil
}
