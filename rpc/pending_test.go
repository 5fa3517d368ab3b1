package rpc

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/luatomictest"
)

// A caller that does not read takes two windows of parts, and no more: what is stored beyond them is fetched once it
// has read some, and not repeatedly until then.
func TestPartsBeyondTheWindowsAreLeftUntilTheyFit(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := luatomictest.Client(t)
	b, err := New(c, luatomictest.Namespace(t), nil)
	require.NoError(t, err)
	w := &waiter{outgoing: outgoing{method: "m"}, id: "id", stream: newStream(ctx)}
	b.pending.expect(w)
	const stored = 3 * window
	fields := make([]any, 0, 2*stored)
	for seq := uint64(1); seq <= stored; seq++ {
		part := wire.Chunk{ID: "id", Seq: seq, Body: fmt.Append(nil, seq)}
		fields = append(fields, fmt.Sprint(seq), string(part.Encode()))
	}
	require.NoError(t, c.HSet(ctx, b.keys.Chunks("id"), fields...).Err())
	b.readChunks(ctx, "id")
	require.NoError(t, ctx.Err())
	require.Len(t, w.stream.chunks, 2*window)

	b.pending.deliver("id", outcome{body: []byte{stored&0x7f | 0x80, stored >> 7}})
	n := 0
	whole, err := b.readStream(ctx, w, func(part []byte) bool {
		n++
		return string(part) == fmt.Sprint(n)
	})
	require.NoError(t, err)
	require.True(t, whole)
	require.Equal(t, stored, n)
}
