package notify_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/notify"
)

func TestWaitIsNeverEarly(t *testing.T) {
	t.Parallel()
	l := notify.New("c")
	for _, d := range []time.Duration{50 * time.Microsecond, 700 * time.Microsecond, time.Millisecond, 1300 * time.Microsecond, 5 * time.Millisecond} {
		for range 20 {
			start := time.Now()
			l.Wait(t.Context(), d)
			require.GreaterOrEqual(t, time.Since(start), d)
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l := notify.New("c")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	start := time.Now()
	l.Wait(ctx, time.Hour)
	require.Less(t, time.Since(start), time.Minute)
}
