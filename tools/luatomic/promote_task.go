package main

import (
	"errors"

	"github.com/luatomic/luatomic/compat/redisinaction"
)

// foreignPromoteResult is the object on stdout in a dialect that has one set of
// scheduled jobs for all queues.
type foreignPromoteResult struct {
	Moved     int    `json:"moved"`
	Malformed int    `json:"malformed"`
	NextDue   *int64 `json:"next_due"`
}

// promoteTasks moves what is due in a system of Redis in Action.
func promoteTasks(s *session, watch bool) error {
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	app := redisinaction.New(client, &redisinaction.Options{Prefix: s.prefix})
	if watch {
		return app.NewPoller(&redisinaction.PollerOptions{
			OnPoll: func(p redisinaction.Polled) {
				_ = s.emit(s.polled(&foreignPromoteResult{}, p)) // which ends the command if it fails
			},
			OnError: s.warnRarely(),
		}).Run(s.signals.stop)
	}
	var out foreignPromoteResult
	for s.signals.stop.Err() == nil {
		var p redisinaction.Polled
		p, err = app.PollQueue(s.signals.hard)
		s.polled(&out, p)
		next, more := p.NextDue.Get()
		stays := errors.Is(err, redisinaction.ErrForeignScore) || errors.Is(err, redisinaction.ErrQueueRefused)
		if err != nil && !stays || !more || next.After(p.Now) {
			break
		}
	}
	if s.signals.stop.Err() != nil {
		err = errInterrupted
	}
	if emitErr := s.emit(out); emitErr != nil {
		return errors.Join(err, emitErr)
	}
	return err
}

// polled adds one poll to the result, and names the malformed items.
func (s *session) polled(out *foreignPromoteResult, p redisinaction.Polled) *foreignPromoteResult {
	out.Moved += p.Moved
	out.Malformed += len(p.Malformed)
	out.NextDue = milli(p.NextDue)
	for _, m := range p.Malformed {
		s.warn(m.Reason)
	}
	return out
}
