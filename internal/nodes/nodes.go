// Package nodes reaches the servers behind a client, one by one.
package nodes

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/lua"
)

// Masters returns a client for each server that holds keys: the client itself, the masters of a cluster, the shards of a
// ring. It asks a cluster for its state where that is not known yet.
func Masters(ctx context.Context, client lua.Client) ([]*redis.Client, error) {
	var mu sync.Mutex
	var found []*redis.Client
	add := func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, node)
		return nil
	}
	switch c := client.(type) {
	case *redis.Client:
		return []*redis.Client{c}, nil
	case *redis.ClusterClient:
		err := c.ForEachMaster(ctx, add)
		return found, err
	case *redis.Ring:
		err := c.ForEachShard(ctx, add)
		return found, err
	}
	return nil, fmt.Errorf("%T has no servers to scan; use a Client, ClusterClient or Ring", client)
}

// Glob is the pattern of SCAN and ACL that matches only s.
func Glob(s string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`, `^`, `\^`).Replace(s)
}
