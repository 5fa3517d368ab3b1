package rpc

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/wire"
)

// A request is published while it is fetched, too, and is answered before the fetch returns, which read it while it was
// pending: it does not run again.
func TestFetchedRequestThatHasRunDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	b, err := New(new(redis.Client), "b", nil)
	require.NoError(t, err)
	var runs atomic.Int64
	b.serving.handle("m", ServeOptions{}, func(context.Context, *work) ([]byte, error) {
		runs.Add(1)
		return nil, nil
	})
	s := b.newSession(t.Context(), t.Context())
	// Attempt 0 wants no reply, so no server is needed; the node treats it like any other request that was fetched.
	q := &wire.Request{ID: "id", Method: "m", Left: time.Minute}
	first := b.reserve(s, []string{"id"})
	require.Len(t, first, 1)
	b.admit(s, q, first[0])
	s.handlers.Wait()
	require.Equal(t, int64(1), runs.Load(), "its name is reserved, and so it runs")
	b.serving.answered(b.serving.works["id"])
	b.admit(s, q, first[0])
	s.handlers.Wait()
	require.Equal(t, int64(1), runs.Load())
}

// A request that is being fetched comes by its message, runs and is answered. Then another reminder has its name
// reserved anew. What the first fetch has read does not run again, and takes the second one's name from it in no way.
func TestAFetchedRequestNeedsItsOwnReservation(t *testing.T) {
	t.Parallel()
	b, err := New(new(redis.Client), "b", nil)
	require.NoError(t, err)
	var runs atomic.Int64
	b.serving.handle("m", ServeOptions{}, func(context.Context, *work) ([]byte, error) {
		runs.Add(1)
		return nil, nil
	})
	s := b.newSession(t.Context(), t.Context())
	q := &wire.Request{ID: "id", Method: "m", Left: time.Minute}
	first := b.reserve(s, []string{"id"})
	b.admit(s, q, nil)
	s.handlers.Wait()
	b.serving.answered(b.serving.works["id"])
	b.serving.release(first) // as attempt 0 leaves the reservation
	second := b.reserve(s, []string{"id"})
	b.admit(s, q, first[0])
	s.handlers.Wait()
	require.Equal(t, int64(1), runs.Load())
	b.serving.release(first)
	require.Same(t, second[0], b.serving.works["id"])
}

// A request that is cancelled while it is fetched does not run: the record may have been read before.
func TestARequestThatIsCancelledWhileItIsFetchedDoesNotRun(t *testing.T) {
	t.Parallel()
	b, err := New(new(redis.Client), "b", nil)
	require.NoError(t, err)
	b.serving.handle("m", ServeOptions{}, func(context.Context, *work) ([]byte, error) {
		t.Error("it runs")
		return nil, nil
	})
	s := b.newSession(t.Context(), t.Context())
	reserved := b.reserve(s, []string{"id"})
	b.heed(s, &wire.Notice{Kind: wire.Cancelled, Texts: []string{"id"}})
	b.admit(s, &wire.Request{ID: "id", Method: "m", Left: time.Minute}, reserved[0])
	s.handlers.Wait()
}
