package rpc

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// besideForeign writes the record of each of nine calls, and foreign data in the place of the third and the last one.
func besideForeign(t *testing.T, b *Bus, record func(id string) string) (ids []string) {
	t.Helper()
	ctx := t.Context()
	for i := range 9 {
		id := fmt.Sprint("id", i)
		ids = append(ids, id)
		require.NoError(t, b.client.Set(ctx, b.keys.Record(id), record(id), time.Hour).Err())
	}
	require.NoError(t, b.client.Set(ctx, b.keys.Record(ids[2]), "data", time.Hour).Err())
	require.NoError(t, b.client.Del(ctx, b.keys.Record(ids[8])).Err())
	require.NoError(t, b.client.RPush(ctx, b.keys.Record(ids[8]), "foreign").Err())
	return ids
}

// A key that holds no record hides no others from the node that missed their requests, and does not keep it busy.
func TestAForeignRecordHoldsUpNoOtherRequest(t *testing.T) {
	t.Parallel()
	errs, ran := make(chan error, 10), make(chan string, 10)
	b, err := New(luatomictest.Client(t), luatomictest.Namespace(t), &Options{
		Lease: 15 * time.Second, OnError: func(err error) { errs <- err },
	})
	require.NoError(t, err)
	b.serving.handle("m", ServeOptions{}, func(_ context.Context, w *work) ([]byte, error) {
		ran <- w.ID
		return nil, nil
	})
	s := b.newSession(t.Context(), t.Context())
	ids := besideForeign(t, b, func(id string) string {
		q := &wire.Request{ID: id, Method: "m", Left: time.Minute, Attempt: 1}
		return "p1 " + s.node + "\n\tcaller\n" + string(b.seal(q.Encode()))
	})
	require.NoError(t, b.fetchAll(s, b.reserve(s, ids)))
	s.handlers.Wait()
	require.Len(t, ran, 7)
	require.Len(t, errs, 2)
	require.ErrorIs(t, <-errs, rpcscript.ErrCollectLayout)
	require.ErrorIs(t, <-errs, lua.ErrWrongType)
}

// The caller that missed replies gets them beside a key that holds no record, whose call may have run.
func TestAForeignRecordHidesNoOtherReply(t *testing.T) {
	t.Parallel()
	b, err := New(luatomictest.Client(t), luatomictest.Namespace(t), &Options{Lease: 15 * time.Second})
	require.NoError(t, err)
	calls := make(map[string]*waiter)
	ids := besideForeign(t, b, func(id string) string {
		w := &waiter{outgoing: outgoing{method: "m"}, id: id, record: b.keys.Record(id)}
		b.pending.expect(w)
		b.pending.placed(w, "n", 1)
		calls[id] = w
		a := &wire.Answer{ID: id, Body: []byte("to " + id)}
		return "d1 n\n\n" + string(b.seal(a.Encode()))
	})
	b.readRecords(t.Context(), ids)
	for i, id := range ids {
		require.True(t, b.pending.isOver(calls[id]), id)
		if i == 2 || i == 8 {
			require.ErrorIs(t, calls[id].out.err, ErrNodeLost)
		} else {
			require.NoError(t, calls[id].out.err)
			require.Equal(t, "to "+id, string(calls[id].out.body))
		}
	}
}
