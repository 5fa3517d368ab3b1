package rpc

import (
	"context"
	"fmt"
	"time"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// fetch reads requests that this node should have and does not know.
func (b *Bus) fetch(s *session, ids []string) {
	unknown := b.serving.reserve(s, ids)
	if len(unknown) == 0 {
		return
	}
	b.serving.spawn(s, func() {
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
	})
}

func (b *Bus) fetchAll(s *session, ids []string) error {
	var calls []string
	for _, id := range ids {
		if !isGather(id) {
			calls = append(calls, id)
		} else if err := b.fetchGather(s, id); err != nil {
			return err
		}
	}
	for len(calls) > 0 {
		later, err := b.fetchCalls(s, calls)
		if err != nil {
			return err
		}
		calls = later
	}
	return nil
}

// fetchCalls reads the records of calls. It returns the ids that did not fit into one reply of the server.
func (b *Bus) fetchCalls(s *session, ids []string) (later []string, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, b.opts.Lease/3)
	defer cancel()
	rows, err := gen.RPCCollect(ctx, b.client, gen.RPCCollectParams{Records: b.records(ids), Node: lua.Some(b.node)})
	for i, row := range rows {
		switch row.State {
		case gen.RPCCollectStateLater:
			later = append(later, ids[i])
		case gen.RPCCollectStatePending:
			b.admitFetched(s, row.Frame, row.Attempt, row.Left)
		}
	}
	return later, err
}

// fetchGather reads the request of a gather.
func (b *Bus) fetchGather(s *session, id string) error {
	ctx, cancel := context.WithTimeout(s.ctx, b.opts.Lease)
	defer cancel()
	rows, err := gen.RPCParts(ctx, b.client, gen.RPCPartsParams{Gather: b.keys.Gather(id), Asking: lua.Some(b.node)})
	if err != nil {
		return err
	}
	for _, row := range rows {
		b.admitFetched(s, row.Frame, 1, row.Left)
	}
	return nil
}

// admitFetched takes a request from its record, which lives callGrace longer than the request.
func (b *Bus) admitFetched(s *session, frame []byte, attempt int64, left time.Duration) {
	if left <= callGrace {
		return
	}
	b.counts.fetched.Add(1)
	q, err := wire.DecodeRequest(string(frame), attempt, left-callGrace, &b.sealer)
	if err != nil {
		b.report(s.ctx, err)
		return
	}
	b.admit(s, q, true)
}

// records returns the keys of calls.
func (b *Bus) records(ids []string) []string {
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = b.keys.Record(id)
	}
	return keys
}
