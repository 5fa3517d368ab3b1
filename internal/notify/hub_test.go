package notify_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/luatomictest"
)

// Whoever has joined is heard, or told that it was deaf for a moment, although others
// leave the channel at the same time.
func TestJoinWhileOthersLeave(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })
	for name, client := range map[string]redis.UniversalClient{"one connection": server.Client(), "one for each channel": ring} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := notify.NewHub(client)
			var mu sync.Mutex
			told := make(map[string]chan struct{})
			tell := func(channel string) {
				mu.Lock()
				defer mu.Unlock()
				select {
				case told[channel] <- struct{}{}:
				default:
				}
			}
			h.Heard = func(channel, _ string) { tell(channel) }
			h.Up = tell
			defer h.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for i := range 100 {
				channel := fmt.Sprint("c", i%3)
				mu.Lock()
				word := make(chan struct{}, 1)
				told[channel] = word
				mu.Unlock()
				require.NoError(t, h.Join(ctx, channel))
				gone := make(chan struct{})
				go func() {
					h.Leave(channel)
					close(gone)
				}()
				require.NoError(t, h.Join(ctx, channel))
				require.NoError(t, client.Publish(ctx, channel, "word").Err())
				select {
				case <-word:
				case <-ctx.Done():
					require.Fail(t, "deaf", "round %d", i)
				}
				<-gone
				h.Leave(channel)
			}
		})
	}
}

func TestJoinAfterCloseFails(t *testing.T) {
	t.Parallel()
	h := notify.NewHub(luatomictest.StartServer(t).Client())
	h.Heard, h.Up = func(string, string) {}, func(string) {}
	require.NoError(t, h.Join(t.Context(), "c"))
	require.True(t, h.Listening("c"))
	h.Close()
	require.False(t, h.Listening("c"))
	require.ErrorIs(t, h.Join(t.Context(), "c"), notify.ErrClosed)
	h.Leave("c")
	h.Leave("c")
	h.Leave("never joined")
}

// A connection that is given up is replaced, and Up says that it was deaf for a moment.
func TestRenewListensOnANewConnection(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	admin, ctx := server.Client(), t.Context()
	up := make(chan string, 10)
	h := notify.NewHub(server.Client())
	h.Heard, h.Up = func(_, _ string) {}, func(channel string) { up <- channel }
	defer h.Close()
	require.NoError(t, h.Join(ctx, "c"))
	luatomictest.Eventually(t, 20*time.Second, "the connection is old enough, and is renewed", func() bool {
		select { // first, so that none is renewed any more once it is up
		case channel := <-up:
			return channel == "c"
		default:
			h.Renew("c")
			return false
		}
	})
	luatomictest.Eventually(t, 20*time.Second, "one connection listens, and the server has noticed that the old one is gone", func() bool {
		return h.Listening("c") && admin.Publish(ctx, "c", "").Val() == 1
	})
}

// Whoever may not subscribe learns it at once, however often it was refused before: it
// looks by itself then, and does not wait for the connection's next attempt.
func TestJoinThatIsRefusedDoesNotWait(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	admin := server.Client()
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "deaf", "on", ">pw", "~*", "&*", "+@all", "-subscribe").Err())
	h := notify.NewHub(server.Client(func(o *redis.Options) { o.Username, o.Password = "deaf", "pw" }))
	h.Heard, h.Up = func(string, string) {}, func(string) {}
	defer h.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 16 { // its attempts are 5 s apart in the end: 40 s in all
		require.ErrorContains(t, h.Join(ctx, "c"), "NOPERM")
		h.Leave("c")
	}
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "deaf", "+subscribe").Err())
	luatomictest.Eventually(t, 20*time.Second, "it may listen now, and does", func() bool {
		err := h.Join(t.Context(), "c")
		if err != nil {
			h.Leave("c")
		}
		return err == nil
	})
}
