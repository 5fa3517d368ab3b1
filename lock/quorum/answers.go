package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
)

// answer is the reply or the error of one server.
type answer[T any] struct {
	value T
	err   error
	node  int
}

// answers has the answers of all servers, in the order in which they arrive.
type answers[T any] struct {
	arrived <-chan answer[T]
	left    int
	stop    <-chan struct{} // later answers do not count
	closed  <-chan struct{} // nor those after Close; nil where they do
	timeout time.Duration
	failed  []send.Failure // of the servers
}

// askAll calls all servers concurrently. Answers count for NodeTimeout. The calls may go on for timeout. Close cuts off
// slow calls that began before it. The calls of a release after Close have NodeTimeout.
func askAll[T any](
	ctx context.Context, q *Quorum, timeout time.Duration, call func(ctx context.Context, node int) (T, error),
) *answers[T] {
	arrived := make(chan answer[T], len(q.clients))
	counts, decided := context.WithTimeout(ctx, q.opts.NodeTimeout)
	life := q.life
	if q.calls.Add() {
		life, timeout = context.Background(), q.opts.NodeTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	stop := context.AfterFunc(life, cancel)
	failed := make([]send.Failure, len(q.clients))
	var calls sync.WaitGroup
	for node := range q.clients {
		calls.Go(func() {
			v, err := call(send.WatchFailures(ctx, &failed[node]), node)
			arrived <- answer[T]{v, err, node}
		})
	}
	go func() {
		defer q.calls.End()
		calls.Wait()
		stop()
		cancel()
		decided()
	}()
	return &answers[T]{
		arrived: arrived, left: len(q.clients), stop: counts.Done(), timeout: q.opts.NodeTimeout, failed: failed,
	}
}

// next returns the next answer. ok is false when none arrives in time.
func (a *answers[T]) next() (answer[T], bool) {
	if a.left == 0 {
		return answer[T]{}, false
	}
	select {
	case v := <-a.arrived:
		a.left--
		return v, true
	case <-a.stop:
	case <-a.closed:
	}
	select { // what has arrived counts
	case v := <-a.arrived:
		a.left--
		return v, true
	default:
		return answer[T]{}, false
	}
}

// tally returns nil when a majority of the answers is good, a lock.ErrLost when so many are bad that this is
// impossible, else the failure of the servers.
func tally[T any](q *Quorum, answers *answers[T], good func(T) bool) error {
	var errs []error
	for yes, no := 0, 0; ; {
		a, ok := answers.next()
		switch {
		case !ok && answers.left > 0:
			return q.failure(append(errs, answers.missing(context.Background())))
		case !ok:
			return q.failure(errs)
		case a.err != nil:
			errs = append(errs, a.err)
		case good(a.value):
			yes++
		default:
			no++
		}
		if yes >= q.majority() {
			return nil
		}
		if no > len(q.clients)-q.majority() {
			return lock.ErrLost
		}
	}
}

// failure joins the errors of servers that left no majority, with ErrNoQuorum unless the content of their keys is the
// reason.
func (q *Quorum) failure(errs []error) error {
	foreign := 0
	for _, err := range errs {
		if isForeign(err) {
			foreign++
		}
	}
	if foreign <= len(q.clients)-q.majority() {
		errs = append([]error{ErrNoQuorum}, errs...)
	}
	return errors.Join(errs...)
}

// isForeign reports whether err says that the key holds something else. A later attempt would find the same.
func isForeign(err error) bool {
	return errors.Is(err, lock.ErrNotALock) || errors.Is(err, lua.ErrWrongType)
}

// named returns the error of a server, as a lock.ErrNotALock if the key holds something else.
func (l *Lease) named(err error) error {
	if layout := (*lua.Error)(nil); errors.As(err, &layout) && layout.Code == "LAYOUT" {
		return fmt.Errorf("%w: key %q; delete it when no process uses it: %w", lock.ErrNotALock, l.keys.Record, err)
	}
	return err
}

// missing returns why the next answer did not arrive.
func (a *answers[T]) missing(ctx context.Context) error {
	if ctx.Err() != nil {
		return a.why(clock.EndOf(ctx))
	}
	select {
	case <-a.closed:
		return lock.ErrClosed
	default:
		return a.why(fmt.Errorf("%w: no answer within %v", lua.ErrOutcomeUnknown, a.timeout))
	}
}

// why adds why a server has refused its call so far, if one has.
func (a *answers[T]) why(end error) error {
	for i := range a.failed {
		if a.failed[i].Known() {
			return a.failed[i].After(end)
		}
	}
	return end
}
