package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// Many queues on a server that is far away are listed and counted in the time of a few, in their order.
func TestQueuesAreListedAbreast(t *testing.T) {
	t.Parallel()
	const n = 20
	e := shared(t)
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("q%02d", i))
		e.pushMany(names[i], "job", 1, queue.Job{})
	}
	for name, list := range map[string]func(context.Context, *session, redis.UniversalClient) error{
		"queues ls": func(ctx context.Context, s *session, client redis.UniversalClient) error {
			return listQueues(ctx, s, client)
		},
		"stats --watch": func(ctx context.Context, s *session, client redis.UniversalClient) error {
			queues, err := queue.Queues(ctx, client, &queue.Options{Prefix: s.prefix})
			require.NoError(t, err)
			c := counting{s: s, rates: newRates()}
			return c.all(ctx, client, queues)
		},
	} {
		client := redis.NewClient(luatomictest.Client(t).Options())
		defer client.Close()
		client.AddHook(lab.NewTogether(8, "hmget"))
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		var out bytes.Buffer
		s := newSession(&out, &out)
		s.prefix = e.prefix
		require.NoError(t, list(ctx, s, client), name)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, n, name)
		for i, line := range lines {
			require.Contains(t, line, fmt.Sprintf(`{"queue":%q,`, names[i]), name)
		}
	}
}

// A server that hangs hides no queue of another one: its error comes after what the others have.
func TestQueuesOfServersThatAnswerAreListed(t *testing.T) {
	t.Parallel()
	var queues *lab.RingQueues
	lab.EachHangs(t, func(ring *redis.Ring) {
		queues = lab.NewRingQueues(t, ring, 80)
	}, func(ring *redis.Ring, live string) {
		if !queues.ListedAt(live) {
			return
		}
		names := queues.At(live)
		var out bytes.Buffer
		require.True(t, isAway(listQueues(t.Context(), newSession(&out, &out), ring)))
		require.Equal(t, len(names), strings.Count(out.String(), `"ready":1,`))

		r := newTopReader(ring, "")
		r.read(t.Context())
		require.NoError(t, r.view.away)
		require.True(t, r.view.queues.part)
		var shown []string
		for _, row := range r.view.queues.rows {
			if !row.hidden {
				shown = append(shown, row.Queue.String())
			}
		}
		require.ElementsMatch(t, names, shown)
	})
}
