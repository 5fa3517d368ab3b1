package actionhero_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/luatomictest"
)

// Cast runs the method on every node and returns before any of them answers.
func TestCastWaitsForNoResponse(t *testing.T) {
	t.Parallel()
	for _, era := range []actionhero.Era{actionhero.Callback, actionhero.Promise} {
		client := luatomictest.Client(t)
		o := actionhero.Options{Channel: luatomictest.Namespace(t), ServerToken: "change-me", Era: era,
			Methods: map[string]int{"api.note": 1}}
		caller := actionhero.NewNode(client, &o)
		require.ErrorIs(t, caller.Cast(t.Context(), "api.note", []any{0}, ""), actionhero.ErrNoResponders)
		require.ErrorIs(t, caller.Cast(t.Context(), "note", []any{0}, ""), actionhero.ErrBadName)

		ran, release := make(chan string, 2), make(chan bool)
		for range 2 {
			o.ServerID = ""
			n := actionhero.NewNode(client, &o)
			require.NoError(t, n.Handle("api.note", func(_ context.Context, r *actionhero.Request) (any, error) {
				ran <- string(r.Args[0])
				<-release
				return nil, nil
			}))
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- n.Run(ctx) }()
			t.Cleanup(func() {
				cancel()
				<-ended
			})
			require.NoError(t, n.Ready(t.Context()))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		require.NoError(t, caller.Cast(ctx, "api.note", []any{7}, ""))
		cancel()
		require.Equal(t, "7", <-ran)
		require.Equal(t, "7", <-ran)
		close(release)
	}
}
