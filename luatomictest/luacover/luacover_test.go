package luacover_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/luatomictest/luacover"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// Tests in parallel begin with the same server: none goes on before the subscription stands. After the flush all that
// was published is written down.
func TestNoStatementIsMissed(t *testing.T) {
	t.Parallel()
	c := luatomictest.Client(t)
	for round := range 20 {
		channel := fmt.Sprint(luatomictest.Namespace(t), round)
		var mu sync.Mutex
		seen := map[string]bool{}
		client, flush := luacover.Collect(channel, func(message string) {
			mu.Lock()
			defer mu.Unlock()
			seen[message] = true
		})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				client(c)
				for n := range 20 {
					c.Publish(t.Context(), channel, fmt.Sprint(i, " ", n))
				}
			})
		}
		wg.Wait()
		flush()
		mu.Lock()
		require.Len(t, seen, 8*20)
		mu.Unlock()
	}
}
