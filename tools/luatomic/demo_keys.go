package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// keyLog notes the keys of every script call. They are all there are: a script
// touches nothing that is not in its KEYS. So the demo can say exactly what it left
// on a server that it shares, and delete it, without a scan of other keys.
type keyLog struct {
	mu   sync.Mutex
	keys map[string]bool
}

func (k *keyLog) DialHook(next redis.DialHook) redis.DialHook {
	return next
}

func (k *keyLog) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		k.note(cmd)
		return next(ctx, cmd)
	}
}

func (k *keyLog) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			k.note(cmd)
		}
		return next(ctx, cmds)
	}
}

func (k *keyLog) note(cmd redis.Cmder) {
	args := cmd.Args()
	if !strings.HasPrefix(cmd.Name(), "eval") || len(args) < 3 {
		return
	}
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

// remove deletes the noted keys and nothing else, also after an interrupt.
func (k *keyLog) remove(client redis.UniversalClient) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	for _, key := range k.all() {
		if err := client.Unlink(ctx, key).Err(); err != nil {
			return err
		}
	}
	return nil
}
