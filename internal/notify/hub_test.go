package notify_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/notify"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// A caller that has subscribed receives messages, or Confirmed reports a gap, although others leave the channel at the
// same time.
func TestSubscribeWhileOthersUnsubscribe(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr()}})
	t.Cleanup(func() { _ = ring.Close() })
	for name, client := range map[string]redis.UniversalClient{"one connection": server.Client(),
		"one for each channel": ring} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := notify.NewHub(client)
			var mu sync.Mutex
			received := make(map[string]chan struct{})
			signal := func(channel string) {
				mu.Lock()
				defer mu.Unlock()
				select {
				case received[channel] <- struct{}{}:
				default:
				}
			}
			h.Message = func(channel, _ string) { signal(channel) }
			h.Confirmed = func(channel string, again bool) {
				if again {
					signal(channel)
				}
			}
			defer h.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for i := range 100 {
				channel := fmt.Sprint("c", i%3)
				mu.Lock()
				message := make(chan struct{}, 1)
				received[channel] = message
				mu.Unlock()
				require.NoError(t, h.Subscribe(ctx, channel))
				left := make(chan struct{})
				go func() {
					h.Unsubscribe(channel)
					close(left)
				}()
				require.NoError(t, h.Subscribe(ctx, channel))
				require.NoError(t, client.Publish(ctx, channel, "message").Err())
				select {
				case <-message:
				case <-ctx.Done():
					require.Fail(t, "no message", "round %d", i)
				}
				<-left
				h.Unsubscribe(channel)
			}
		})
	}
}

// All channels of an AutoPipeliner on one server are on one connection, as those of the client under it.
func TestChannelsOfAnAutoPipelinerShareAConnection(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	piped, err := server.Client().AutoPipeline()
	require.NoError(t, err)
	requireOneConnection(t, server, piped)
}

// So are those of a struct of the caller that has a client in it, as programs make for traces.
func TestChannelsOfAClientInAStructShareAConnection(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	requireOneConnection(t, server, struct{ *redis.Client }{server.Client()})
}

func requireOneConnection(t *testing.T, server *luatomictest.Server, client redis.UniversalClient) {
	t.Helper()
	h := notify.NewHub(client)
	h.Message, h.Confirmed = func(_, _ string) {}, func(string, bool) {}
	t.Cleanup(h.Close)
	for i := range 20 {
		require.NoError(t, h.Subscribe(t.Context(), fmt.Sprint("c", i)))
	}
	subscribers, err := server.Client().Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(subscribers, "\n"), subscribers)
	require.False(t, h.Tagged())
}

func TestSubscribeAfterCloseFails(t *testing.T) {
	t.Parallel()
	h := notify.NewHub(luatomictest.StartServer(t).Client())
	h.Message, h.Confirmed = func(string, string) {}, func(string, bool) {}
	require.NoError(t, h.Subscribe(t.Context(), "c"))
	require.True(t, h.Subscribed("c"))
	h.Close()
	require.False(t, h.Subscribed("c"))
	require.ErrorIs(t, h.Subscribe(t.Context(), "c"), notify.ErrClosed)
	h.Unsubscribe("c")
	h.Unsubscribe("c")
	h.Unsubscribe("never joined")
}

// Reconnect replaces the connection, Lost has the reason, and Confirmed reports the gap.
func TestReconnectSubscribesOnANewConnection(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	admin, ctx := server.Client(), t.Context()
	up := make(chan string, 10)
	h := notify.NewHub(server.Client())
	h.Message = func(_, _ string) {}
	h.Confirmed = func(channel string, again bool) {
		if again {
			up <- channel
		}
	}
	reasons := make(chan error, 10)
	h.Lost = func(_ string, err error) { reasons <- err }
	defer h.Close()
	require.NoError(t, h.Subscribe(ctx, "c"))
	luatomictest.Eventually(t, 20*time.Second, "the connection is old enough, and is renewed", func() bool {
		select { // first, so that none is renewed any more once it is up
		case channel := <-up:
			return channel == "c"
		default:
			h.Reconnect("c")
			return false
		}
	})
	require.ErrorContains(t, <-reasons, "receives none of its messages")
	luatomictest.Eventually(t, 20*time.Second, "one connection is subscribed, and the server has closed the old one",
		func() bool {
			return h.Subscribed("c") && admin.Publish(ctx, "c", "").Val() == 1
		})
}

// A caller without permission to subscribe gets the error immediately, however often it was refused before. It can
// poll then, and does not wait for the connection's next attempt.
func TestSubscribeThatIsRefusedDoesNotWait(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	admin := server.Client()
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "unsubscribed", "on", ">pw", "~*", "&*", "+@all",
		"-subscribe").Err())
	h := notify.NewHub(server.Client(func(o *redis.Options) { o.Username, o.Password = "unsubscribed", "pw" }))
	h.Message, h.Confirmed = func(string, string) {}, func(string, bool) {}
	defer h.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for range 16 { // the connection's attempts come to be 5 s apart: 40 s in all
		require.ErrorContains(t, h.Subscribe(ctx, "c"), "NOPERM")
		h.Unsubscribe("c")
	}
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "unsubscribed", "+subscribe").Err())
	luatomictest.Eventually(t, 20*time.Second, "it may subscribe now, and does", func() bool {
		err := h.Subscribe(t.Context(), "c")
		if err != nil {
			h.Unsubscribe("c")
		}
		return err == nil
	})
}

// A channel that was subscribed and is refused on the next connection is reported, and asked for again without a
// caller.
func TestAChannelThatIsRefusedAnewIsReportedAndAskedForAgain(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	admin := server.Client()
	rights := func(channels ...any) {
		args := []any{"ACL", "SETUSER", "late", "on", ">pw", "~*", "+@all", "resetchannels"}
		require.NoError(t, admin.Do(t.Context(), append(args, channels...)...).Err())
	}
	rights("&*")
	h := notify.NewHub(server.Client(func(o *redis.Options) { o.Username, o.Password = "late", "pw" }))
	lost := make(chan error, 100)
	h.Message, h.Confirmed = func(string, string) {}, func(string, bool) {}
	h.Lost = func(channel string, err error) {
		if channel == "c" {
			lost <- err
		}
	}
	defer h.Close()
	require.NoError(t, h.Subscribe(t.Context(), "c"))
	require.NoError(t, h.Subscribe(t.Context(), "kept"))
	rights("&kept") // the server closes the connection
	luatomictest.Eventually(t, 20*time.Second, "it is refused", func() bool {
		return redis.HasErrorPrefix(lab.Soon(t, 20*time.Second, "a report", lost), "NOPERM")
	})
	luatomictest.Eventually(t, 20*time.Second, "the other is not", func() bool { return h.Subscribed("kept") })
	connection := admin.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").String()
	rights("&*")
	luatomictest.Eventually(t, 20*time.Second, "it is subscribed", func() bool { return h.Subscribed("c") })
	id, _, _ := strings.Cut(connection, " addr")
	require.Contains(t, admin.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").String(), id,
		"on the same connection")
}

// A slot moves, and the channel is subscribed at its new server before the connection to the old one has reported the
// end of the subscription there: nothing is lost.
func TestAConnectionReportsNothingOfAChannelThatHasMoved(t *testing.T) {
	t.Parallel()
	h := record(t, luatomictest.StartServer(t).Client())
	var lost atomic.Int32
	h.Lost = func(string, error) { lost.Add(1) }
	require.NoError(t, h.Subscribe(t.Context(), "c"))
	h.LoseElsewhere("c")
	require.Zero(t, lost.Load())
	require.True(t, h.Subscribed("c"))
}
