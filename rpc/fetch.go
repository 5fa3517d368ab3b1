package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// fetch reads requests that this node should have and does not know.
func (b *Bus) fetch(s *session, ids []string) {
	unknown := b.reserve(s, ids)
	if len(unknown) == 0 {
		return
	}
	if !b.serving.spawn(s, func() {
		retry := clock.Backoff{First: 10 * time.Millisecond, Last: time.Second}
		for s.ctx.Err() == nil {
			err := b.fetchAll(s, unknown)
			if err == nil {
				break
			}
			b.report(s.ctx, fmt.Errorf("luatomic: fetch requests of bus %q: %w", b.name, err))
			clock.Sleep(s.ctx, retry.Next())
		}
		b.serving.release(unknown)
	}) {
		b.serving.release(unknown)
	}
}

func (b *Bus) fetchAll(s *session, reserved []*work) error {
	for len(reserved) > 0 {
		part := reserved[:min(len(reserved), maxKeys)]
		later, err := b.fetchCalls(s, part)
		if err != nil {
			return err
		}
		reserved = append(later, reserved[len(part):]...)
	}
	return nil
}

// fetchCalls reads the records of calls. It returns the works that did not fit into one reply of the server.
func (b *Bus) fetchCalls(s *session, reserved []*work) (later []*work, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, b.opts.Lease/3)
	defer cancel()
	ids := make([]string, len(reserved))
	for i, w := range reserved {
		ids[i] = w.ID
	}
	rows, err := b.collect(ctx, ids, lua.Some(s.node))
	for i, row := range rows {
		switch row.State {
		case rpcscript.CollectStateLater:
			later = append(later, reserved[i])
		case rpcscript.CollectStatePending:
			b.admitFetched(s, row, reserved[i])
		}
	}
	return later, err
}

// admitFetched takes a request from its record, which is stored for callGrace longer than the request. The record of a
// call with a key is stored for longer than its handler may take.
func (b *Bus) admitFetched(s *session, row rpcscript.CollectRow, reserved *work) {
	left := row.Left - callGrace
	if left <= 0 {
		return
	}
	b.counts.fetched.Add(1)
	q, err := wire.DecodeRequest(string(row.Frame), row.Attempt, left, &b.sealer)
	if err != nil {
		b.refused(s, err)
		return
	}
	if q.Keep > 0 {
		q.Left = min(q.Left, time.Duration(q.Ext.Millis)*time.Millisecond)
	}
	b.admit(s, q, reserved)
}

// collect reads the records of calls, for a node or for a caller. A key that holds no record counts as missing and is
// reported: the script stops at it, so the others are read without it.
func (b *Bus) collect(ctx context.Context, ids []string, node lua.Opt[string]) ([]rpcscript.CollectRow, error) {
	rows, err := rpcscript.Collect(ctx, b.client, rpcscript.CollectParams{Records: b.records(ids), Node: node})
	if !errors.Is(err, lua.ErrWrongType) && !errors.Is(err, rpcscript.ErrCollectLayout) {
		return rows, err
	}
	if len(ids) == 1 {
		b.report(ctx, fmt.Errorf("luatomic: read the record of call %s on bus %q: %w", ids[0], b.name, err))
		return make([]rpcscript.CollectRow, 1), nil
	}
	half := len(ids) / 2
	rows, err = b.collect(ctx, ids[:half], node)
	if err != nil {
		return rows, err
	}
	rest, err := b.collect(ctx, ids[half:], node)
	return append(rows, rest...), err
}

// records returns the keys of calls.
func (b *Bus) records(ids []string) []string {
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = b.keys.Record(id)
	}
	return keys
}
