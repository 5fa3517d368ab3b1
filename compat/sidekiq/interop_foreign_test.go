//go:build interop

package sidekiq_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A job that another language wrote fails in Go, and the web interface's reschedule moves it: it is there once.
func TestInteropRubyReschedulesAForeignJobThatFailedInGo(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		const jid = "0123456789abcdef01234567"
		s.fail(nil, errSad, `{"class": "InteropJob", "queue": "default", "args": [1.50, "\u003c"], "retry": true, `+
			`"jid": "`+jid+`", "created_at": 1795230010.5, "enqueued_at": 1795230010.5}`)
		require.Len(t, s.members("retry"), 1)
		s.ask("reschedule", map[string]any{"set": "retry", "jid": jid, "at": time.Now().Unix() + 3600}, nil)
		retry := s.members("retry")
		require.Len(t, retry, 1)
		require.InDelta(t, float64(time.Now().Unix()+3600), retry[0].Score, 60)
	})
}
