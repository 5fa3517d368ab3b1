package servers

import (
	"context"
	"errors"
	"slices"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

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
