// Package servers reaches the servers behind a client, one by one.
package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// Of returns the server that has the key, and a name for it: its address in a cluster or ring, empty for the one server
// of a Client or of an AutoPipeliner on one. A guard of the client is left out. A client that does not say which
// servers it has is its own server for each key, of the key's name. In a cluster Of asks for the state only where that
// is not known yet.
func Of(ctx context.Context, client lua.Client, key string) (node redis.UniversalClient, name string, err error) {
	client = unguarded(client)
	if send.OneServer(client) {
		return client, "", nil
	}
	var owner *redis.Client
	switch c := client.(type) {
	case clustered:
		owner, err = c.MasterForKey(ctx, key)
	case sharded:
		owner, err = c.GetShardClientForKey(key)
	default:
		return client, key, nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("server of %q: %w", key, err)
	}
	return owner, owner.Options().Addr, nil
}

// clustered is a ClusterClient, also one that is part of a struct of the caller.
type clustered interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ForEachMaster(ctx context.Context, do func(ctx context.Context, master *redis.Client) error) error
	ReloadState(ctx context.Context)
}

// sharded is a Ring, also one that is part of a struct of the caller.
type sharded interface {
	GetShardClientForKey(key string) (*redis.Client, error)
	ForEachShard(ctx context.Context, do func(ctx context.Context, shard *redis.Client) error) error
}

// Clustered reports whether each channel and key has a slot, whose server only the client knows.
func Clustered(client lua.Client) bool {
	_, ok := unguarded(client).(clustered)
	return ok
}

// Reload has the client of a cluster ask for its state, behind the calls that use it.
func Reload(ctx context.Context, client lua.Client) {
	if c, ok := unguarded(client).(clustered); ok {
		c.ReloadState(ctx)
	}
}

// Read sends a command that only reads, and whose first argument is its key, to the server that has the latest value:
// in a cluster to the master, although the client may read from replicas.
func Read[C redis.Cmder](ctx context.Context, client lua.Client, cmd C) C {
	_ = client.Process(ctx, fromMaster(client, cmd)) // cmd has the error
	return cmd
}

// ReadAll is Read for several commands, in one round trip to each server. It returns the first error.
func ReadAll[C redis.Cmder](ctx context.Context, client lua.Client, cmds []C) error {
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, cmd := range cmds {
			_ = p.Process(ctx, fromMaster(client, cmd)) // it is sent by Pipelined
		}
		return nil
	})
	return err
}

func fromMaster(client lua.Client, cmd redis.Cmder) redis.Cmder {
	if Clustered(client) {
		return atMaster{cmd}
	}
	return cmd
}

// atMaster is a command with the name of a write. A ClusterClient chooses the server by it.
type atMaster struct{ redis.Cmder }

func (atMaster) Name() string { return "set" }

// Time returns the time of the server that has the key. A TIME without a key goes to any server of a cluster or ring:
// its clock is another one, and it may be one that does not answer.
func Time(ctx context.Context, client lua.Client, key string) (time.Time, error) {
	server, _, err := Of(ctx, client, key)
	if err != nil {
		return time.Time{}, err
	}
	return server.Time(ctx).Result()
}

func unguarded(client lua.Client) lua.Client {
	if g, ok := client.(interface{ Unguarded() lua.Client }); ok {
		return g.Unguarded()
	}
	return client
}

// Node is a Client, also one that is part of a struct of the caller.
type Node interface {
	redis.UniversalClient
	Options() *redis.Options
}

// Masters returns a client for each server that holds keys: the client itself, the masters of a cluster, the shards of
// a ring. A guard of the client is left out. It asks a cluster for its state where that is not known yet.
func Masters(ctx context.Context, client lua.Client) ([]Node, error) {
	if err := send.CheckClient(client); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var found []Node
	add := func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, node)
		return nil
	}
	switch c := unguarded(client).(type) {
	case Node:
		return []Node{c}, nil
	case clustered:
		err := c.ForEachMaster(ctx, add)
		return found, err
	case sharded:
		err := c.ForEachShard(ctx, add)
		return found, err
	}
	return nil, fmt.Errorf("%T has no servers to scan; use a Client, ClusterClient or Ring", client)
}

// Answers returns why no server serves this client, if none does: it is away, busy or loading, or refuses the greeting.
// It asks all of them: a PING of a cluster or ring goes to any one, which may be the one that hangs.
func Answers(ctx context.Context, client redis.UniversalClient) error {
	servers, err := Masters(ctx, client)
	if err != nil || len(servers) < 2 {
		return answers(ctx, client)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	heard := make(chan error, len(servers))
	for _, server := range servers {
		go func() { heard <- answers(ctx, server) }()
	}
	for range servers {
		if err = <-heard; err == nil {
			return nil
		}
	}
	return err
}

// answers is Answers of one server. One that cannot save its data refuses PING, and is there.
func answers(ctx context.Context, client redis.UniversalClient) error {
	err := client.Ping(ctx).Err()
	if redis.HasErrorPrefix(err, "MISCONF") {
		return nil
	}
	return err
}

// Glob is the pattern of SCAN and ACL that matches only s.
func Glob(s string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`, `^`, `\^`).Replace(s)
}

// Buses searches all servers for the lists of nodes under the prefix, and returns the names of their buses in order. It
// searches all of them at the same time, and returns the names that it has found with an error, too.
func Buses(ctx context.Context, client lua.Client, prefix string) ([]string, error) {
	servers, err := Masters(ctx, client)
	if err != nil {
		return nil, err
	}
	found, errs := make([][]string, len(servers)), make([]error, len(servers))
	send.Abreast(len(servers), func(i int) { found[i], errs[i] = busesOf(ctx, servers[i], prefix) })
	names := slices.Concat(found...)
	slices.Sort(names)
	return slices.Compact(names), errors.Join(errs...)
}

// busesOf searches one server.
func busesOf(ctx context.Context, server Node, prefix string) (names []string, err error) {
	for cursor, more := uint64(0), true; more && err == nil; more = cursor != 0 {
		var found []string
		found, cursor, err = server.ScanType(ctx, cursor, Glob(prefix)+keys.AnyBus, 500, "zset").Result()
		for _, key := range found {
			if name, ok := keys.BusOf(prefix, key); ok {
				names = append(names, name)
			}
		}
	}
	return names, err
}
