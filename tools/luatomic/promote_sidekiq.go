package main

import (
	"errors"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
)

// promoteSidekiq moves what is due in schedule and retry.
func promoteSidekiq(s *session, name string, watch bool) error {
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	d, err := s.openSidekiq(client, name)
	if err != nil {
		return err
	}
	if watch {
		warn := s.warnRarely()
		return d.NewPoller(&sidekiq.PollerOptions{
			OnMove: func(_ sidekiq.Set, m sidekiq.Moved) {
				_ = s.emit(s.movedDue(&foreignPromoteResult{}, m)) // which ends the command if it fails
			},
			OnError: func(_ sidekiq.Set, err error) { warn(err) },
		}).Run(s.signals.stop)
	}
	var out foreignPromoteResult
	var next lua.Opt[time.Time]
	for _, set := range []sidekiq.Set{sidekiq.Retry, sidekiq.Schedule} {
		due, moveErr := promoteSet(s, d, set, &out)
		next, err = earlier(next, due), errors.Join(err, moveErr)
	}
	out.NextDue = milli(next)
	if s.signals.stop.Err() != nil {
		err = errInterrupted
	}
	if emitErr := s.emit(out); emitErr != nil {
		return errors.Join(err, emitErr)
	}
	return err
}

// promoteSet moves all that is due in the set, and returns when the next job is due.
func promoteSet(
	s *session, d *sidekiq.Dialect, set sidekiq.Set, out *foreignPromoteResult,
) (due lua.Opt[time.Time], err error) {
	for s.signals.stop.Err() == nil {
		m, err := d.MoveDue(s.signals.hard, set, 0)
		s.movedDue(out, m)
		next, more := m.NextDue.Get()
		goes := err == nil || errors.Is(err, sidekiq.ErrQueueRefused) && m.Moved+len(m.Malformed) > 0
		if !goes || !more || next.After(m.Now) {
			return m.NextDue, err
		}
	}
	return due, nil
}

// movedDue adds one move to the result, and names the malformed members.
func (s *session) movedDue(out *foreignPromoteResult, m sidekiq.Moved) *foreignPromoteResult {
	out.Moved += m.Moved
	out.Malformed += len(m.Malformed)
	out.NextDue = milli(m.NextDue)
	for _, bad := range m.Malformed {
		s.warn(bad.Err)
	}
	return out
}

func earlier(a, b lua.Opt[time.Time]) lua.Opt[time.Time] {
	x, isX := a.Get()
	y, isY := b.Get()
	if !isX || isY && y.Before(x) {
		return b
	}
	return a
}
