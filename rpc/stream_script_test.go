package rpc_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
)

// These are the branches of rpc/chunk.lua and rpc/read.lua whose loss a stream repairs by itself, only later.

// Outside a cluster a part, and the word of a caller that has read some, is a plain message.
func TestPartsArePlainMessagesOutsideACluster(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, scriptcase.Asked(ctx, c, k))
	chunk := rpcscript.ChunkParams{Record: "{" + k + "}:r:1", Chunks: "{" + k + "}:s:1", Node: "n", Attempt: 1, Seq: 1,
		Frame: []byte("part"), Outbox: k, Keep: time.Minute}
	require.Equal(t, []string{"part"}, published(t, c, k, func() { lab.Must(rpcscript.Chunk(ctx, c, chunk)) }))
	chunk.Notice = []byte("L")
	require.Equal(t, []string{"L"}, published(t, c, k, func() { lab.Must(rpcscript.Chunk(ctx, c, chunk)) }))
	read := rpcscript.ReadParams{Chunks: chunk.Chunks, Read: 1, Count: 1, Notice: []byte("K"), Channel: k + "n"}
	require.Equal(t, []string{"K"}, published(t, c, k, func() { lab.Must(rpcscript.Read(ctx, c, read)) }))
}

// A caller that has nothing to say to the node deletes parts without a message.
func TestPartsAreDeletedWithoutAMessage(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, scriptcase.Streamed(ctx, c, k))
	read := rpcscript.ReadParams{Chunks: "{" + k + "}:s:1", Read: 2, Count: 2, Channel: k + "n"}
	require.Empty(t, published(t, c, k, func() { lab.Must(rpcscript.Read(ctx, c, read)) }))
	require.Equal(t, map[string]string{"0": "2"}, c.HGetAll(ctx, read.Chunks).Val(), "what was read")
}

// What was read is known for as long as the parts would stay. A late copy of a read changes it no more, and makes no
// key, which would stay for good. A late copy of a part that was read is not stored.
func TestWhatWasReadIsKnown(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	require.NoError(t, scriptcase.Asked(ctx, c, k))
	chunk := rpcscript.ChunkParams{Record: "{" + k + "}:r:1", Chunks: "{" + k + "}:s:1", Node: "n", Attempt: 1,
		Frame: []byte("part"), Outbox: k, Keep: time.Minute}
	send := func(seq int64) {
		chunk.Seq = seq
		require.Equal(t, rpcscript.ChunkResultAccepted, lab.Must(rpcscript.Chunk(ctx, c, chunk)))
	}
	read := rpcscript.ReadParams{Chunks: chunk.Chunks, Read: 1, Count: 1}
	lab.Must(rpcscript.Read(ctx, c, read))
	require.Zero(t, c.Exists(ctx, chunk.Chunks).Val())
	send(1)
	send(2)
	read.Read, read.Count = 2, 2
	lab.Must(rpcscript.Read(ctx, c, read))
	read.Read, read.Count = 1, 1
	lab.Must(rpcscript.Read(ctx, c, read))
	require.Empty(t, published(t, c, k, func() { send(2) }))
	require.Equal(t, map[string]string{"0": "2"}, c.HGetAll(ctx, chunk.Chunks).Val())
	require.Positive(t, c.PTTL(ctx, chunk.Chunks).Val())
	send(3)
	require.Equal(t, map[string]string{"0": "2", "3": "part"}, c.HGetAll(ctx, chunk.Chunks).Val())
}

// A caller reads parts in order, up to the first missing one, and no more than a megabyte and one part at a time.
func TestPartsAreReadInOrder(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), luatomictest.Namespace(t)
	read := rpcscript.ReadParams{Chunks: "{" + k + "}:s:1", From: 2, Count: 500}
	require.NoError(t, c.HSet(ctx, read.Chunks, "1", "one", "2", "two", "3", "three", "5", "five").Err())
	require.Equal(t, [][]byte{[]byte("two"), []byte("three")}, lab.Must(rpcscript.Read(ctx, c, read)))
	require.Equal(t, int64(4), c.HLen(ctx, read.Chunks).Val(), "what is read stays")
	large := strings.Repeat("x", 600_000)
	require.NoError(t, c.HSet(ctx, read.Chunks, "2", large, "3", large).Err())
	require.NoError(t, c.HSet(ctx, read.Chunks, "4", "four").Err())
	require.Len(t, lab.Must(rpcscript.Read(ctx, c, read)), 2)
}

// A full server lets a caller remove what it has read.
func TestPartsAreRemovedFromAFullServer(t *testing.T) {
	t.Parallel()
	ctx, c := t.Context(), luatomictest.StartServer(t).Client()
	read := rpcscript.ReadParams{Chunks: "{k}:s:1", Read: 2, Count: 2}
	require.NoError(t, c.HSet(ctx, read.Chunks, "1", "one", "2", "two", "3", "three").Err())
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1").Err())
	require.ErrorContains(t, c.Set(ctx, "x", "y", 0).Err(), "OOM")
	lab.Must(rpcscript.Read(ctx, c, read))
	require.Equal(t, map[string]string{"0": "2", "3": "three"}, c.HGetAll(ctx, read.Chunks).Val())
}
