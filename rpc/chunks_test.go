package rpc

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// A caller that does not read takes two windows of parts, and no more: what is stored
// beyond them is fetched when it has read some, and not again and again until then.
func TestPartsBeyondTheWindowsAreLeftUntilTheyFit(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := luatomictest.Client(t)
	b, err := NewBus(c, luatomictest.Namespace(t), nil)
	require.NoError(t, err)
	s := &stream{parts: make(map[uint64][]byte), changed: make(chan struct{}, 1)}
	w := b.expect("id", "m", false)
	w.stream = s
	const stored = 3 * window
	fields := make([]any, 0, 2*stored)
	for seq := uint64(1); seq <= stored; seq++ {
		part := chunk{id: "id", seq: seq, body: fmt.Append(nil, seq)}
		fields = append(fields, fmt.Sprint(seq), string(part.encode()))
	}
	require.NoError(t, c.HSet(ctx, b.keys.Chunks("id"), fields...).Err())
	b.collectChunks(ctx, "id")
	require.NoError(t, ctx.Err())
	require.Len(t, s.parts, 2*window)

	w.answer <- response{id: "id", body: []byte{stored&0x7f | 0x80, stored >> 7}}
	n := 0
	whole, err := b.readStream(ctx, w, s, func(part []byte) bool {
		n++
		return string(part) == fmt.Sprint(n)
	})
	require.NoError(t, err)
	require.True(t, whole)
	require.Equal(t, stored, n)
}
