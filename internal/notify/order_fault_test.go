package notify_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// The server has the subscriptions that the process has, although callers subscribe and unsubscribe at the same time:
// the requests of a connection leave in the order of the calls.
func TestSubscriptionsAtTheServerAreThoseOfTheProcess(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client, admin := server.Client(), server.Client()
	h := record(t, client)
	const channels = 50
	var wg sync.WaitGroup
	for i := range channels {
		channel := fmt.Sprint("c", i)
		for range 2 {
			wg.Go(func() {
				for range 20 {
					if err := h.Subscribe(t.Context(), channel); err != nil {
						t.Error(err)
					}
					h.Unsubscribe(channel)
				}
			})
		}
	}
	wg.Wait()
	require.NoError(t, h.Subscribe(t.Context(), "last"))
	var left []string
	require.Eventually(t, func() bool {
		left = admin.PubSubChannels(t.Context(), "c*").Val()
		return len(left) == 0
	}, 5*time.Second, 10*time.Millisecond, "no subscription is left behind")
}
