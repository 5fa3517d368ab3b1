package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A call that its caller gave up, or that began after the client was closed, says nothing about the server.
func TestACallWithoutAnAnswerEndsNoOutage(t *testing.T) {
	t.Parallel()
	for _, err := range []error{context.Canceled, fmt.Errorf("dial: %w", context.Canceled), redis.ErrClosed} {
		var said strings.Builder
		o := &outage{s: newSession(io.Discard, &said), server: "redis://x"}
		get := redis.NewCmd(t.Context(), "get", "x")
		o.ended(t.Context(), get, time.Now().Add(-2*awayAfter), errors.New("connection refused"))
		require.Contains(t, said.String(), "does not answer")
		o.ended(t.Context(), get, time.Now(), err)
		require.NotContains(t, said.String(), "answers again", err)
		o.ended(t.Context(), get, time.Now(), nil)
		require.Contains(t, said.String(), "answers again")
	}
}
