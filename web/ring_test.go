package web_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/web"
)

// A server that hangs hides nothing of another one, however many queues it has.
func TestPagesOfARingShowWhatServersThatAnswerHave(t *testing.T) {
	t.Parallel()
	const locks = 20 // each server has some
	var queues *lab.RingQueues
	lab.EachHangs(t, func(ring *redis.Ring) {
		queues = lab.NewRingQueues(t, ring, 80)
		for i := range locks {
			lab.Must(lab.Locker(t, ring, nil).Try(t.Context(), fmt.Sprint("l", i)))
			require.NoError(t, ring.ZAdd(t.Context(), fmt.Sprintf("rpc:{b%d}:nodes", i), redis.Z{Member: "n"}).Err())
		}
	}, func(ring *redis.Ring, live string) {
		s := &site{t: t, client: ring, handler: web.Handler(ring, nil)}
		t.Run("locks", func(t *testing.T) { require.Contains(t, s.ok("/locks.json"), `"partial":true`) })
		t.Run("rpc", func(t *testing.T) { require.Contains(t, s.ok("/rpc.json"), `"partial":true`) })
		t.Run("server", func(t *testing.T) {
			require.Contains(t, s.ok("/server"), "Not all servers are checked. The server")
		})
		if !queues.ListedAt(live) {
			require.Equal(t, http.StatusServiceUnavailable, s.get("/").code)
			return
		}
		var data struct {
			Queues []struct {
				Queue string
				Ready int
				Fault *struct{ ID string }
			}
		}
		s.read("/index.json", &data)
		var shown []string
		numbers := make(map[string]bool)
		for _, q := range data.Queues {
			if q.Fault != nil {
				numbers[q.Fault.ID] = true
				continue
			}
			require.Equal(t, 1, q.Ready)
			shown = append(shown, q.Queue)
		}
		require.ElementsMatch(t, queues.At(live), shown)
		require.Len(t, numbers, 1, "one line of the log for the server that hangs")
	})
}
