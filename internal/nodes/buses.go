package nodes

import (
	"context"
	"slices"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// Buses searches all servers for the lists of nodes under the prefix, and returns the names of their buses in order. It
// returns those it has found with an error, too.
func Buses(ctx context.Context, client lua.Client, prefix string) (names []string, err error) {
	servers, err := Masters(ctx, client)
	for _, server := range servers {
		for cursor, more := uint64(0), true; more && err == nil; more = cursor != 0 {
			var found []string
			found, cursor, err = server.ScanType(ctx, cursor, Glob(prefix)+keys.AnyBus, 500, "zset").Result()
			for _, key := range found {
				if name, ok := keys.BusOf(prefix, key); ok {
					names = append(names, name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}
