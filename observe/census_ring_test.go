package observe_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/observe"
)

// A server that hangs hides no queue of another one, however many queues it has.
func TestACensusOfARingCountsTheQueuesOfServersThatAnswer(t *testing.T) {
	t.Parallel()
	var queues *lab.RingQueues
	lab.EachHangs(t, func(ring *redis.Ring) {
		queues = lab.NewRingQueues(t, ring, 100)
	}, func(ring *redis.Ring, live string) {
		if !queues.ListedAt(live) {
			return
		}
		r := newRecorder()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.Error(t, (&observe.Census{Client: ring}).Read(ctx, r))
		for _, name := range queues.At(live) {
			require.Equal(t, 1, r.count[fmt.Sprintf("luatomic.queue.jobs luatomic %s  ready", name)])
		}
	})
}
