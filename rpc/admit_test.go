package rpc

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A request comes by a push while it is fetched, too, and is answered before the fetch
// comes back, which was read when it still waited: it does not run again.
func TestFetchedRequestThatHasRunDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	b, err := NewBus(nil, "b", nil)
	require.NoError(t, err)
	var runs atomic.Int64
	b.served["m"] = new(handlerCounts)
	b.handlers["m"] = func(context.Context, *work) ([]byte, error) {
		runs.Add(1)
		return nil, nil
	}
	q := request{id: "id", method: "m"}
	frame := string(q.encode())
	var handlers sync.WaitGroup
	b.works["id"] = &work{bus: b, parent: t.Context(), fetched: true}
	// Attempt 0 wants no reply, so there is no need of a server; as to who knows the
	// request it is like any other that was fetched.
	require.NoError(t, b.admit(t.Context(), 0, time.Minute, frame, true, &handlers))
	handlers.Wait()
	require.Equal(t, int64(1), runs.Load(), "the name is taken, and so it runs")
	delete(b.works, "id") // answered
	require.NoError(t, b.admit(t.Context(), 0, time.Minute, frame, true, &handlers))
	handlers.Wait()
	require.Equal(t, int64(1), runs.Load())
}
