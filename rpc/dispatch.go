package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	rpcscript "github.com/luatomic/luatomic/gen/rpc"
	"github.com/luatomic/luatomic/internal/clock"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/internal/wire"
	"github.com/luatomic/luatomic/lua"
)

// sending is the context of the scripts that send a call. It ends with the call's time, and when the caller gives up.
// It has no channel: the goroutine that uses it can wait for the server.
type sending struct {
	context.Context
	bus      *Bus
	w        *waiter
	deadline time.Time
	twice    atomic.Bool // a script was sent more than once
}

func (s *sending) Deadline() (time.Time, bool) { return s.deadline, true }
func (s *sending) Done() <-chan struct{}       { return nil }
func (s *sending) NoteResent()                 { s.twice.Store(true) }

func (s *sending) Err() error {
	if s.w.gone.Load() {
		return context.Canceled
	}
	if !time.Now().Before(s.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// Value lets the runtime note here that it has sent a script again, or will and why.
func (s *sending) Value(key any) any {
	if key == (send.ResentKey{}) || key == (send.FailedKey{}) {
		return s
	}
	return s.Context.Value(key)
}

// asking is sending for scripts that do not give the call to a node. They may be sent any number of times.
type asking struct{ *sending }

func (a asking) Value(key any) any {
	if key == (send.FailedKey{}) {
		return a.sending
	}
	return a.Context.Value(key)
}

const (
	// maxSearches is how often the nodes of a method are read for one call.
	maxSearches = 4
	// maxTried is how many nodes may refuse one call.
	maxTried = 16
	// moveNap is the first wait of a call for a connection that moves. The n-th one is n² as long: 3.7 s in all, so
	// that a call with the default time ends as refused.
	moveNap = 3 * time.Millisecond
)

// placeFirst places a call for the first time, in another goroutine.
func (b *Bus) placeFirst(ctx context.Context, w *waiter) {
	w.first = sending{Context: ctx, bus: b, w: w, deadline: w.deadline}
	send.Reuse(&w.first)
}

// place gives a call to a node, see sending.Run.
func (b *Bus) place(ctx context.Context, w *waiter) {
	(&sending{Context: ctx, bus: b, w: w, deadline: w.deadline}).Run()
}

// Run gives the call to a node. If no node can take the call, the call ends with the reason. A call is placed again
// when a node has refused it or is dead: the script decides, in one step, whether another node may have it.
func (s *sending) Run() {
	b, w := s.bus, s.w
	if !b.pending.startPlacing(w) {
		return
	}
	resubscribed := b.liveness.resubscribed.Load()
	b.pending.mu.Lock()
	w.resubscribed = resubscribed
	b.pending.mu.Unlock()
	node, err := b.seek(s, w)
	if s.twice.Load() || errors.Is(err, lua.ErrOutcomeUnknown) {
		b.pending.noteResent(w)
	}
	at := b.pending.placed(w, node, b.liveness.resubscribed.Load())
	if at.over {
		b.removeRecords(w)
	}
	switch {
	case err != nil:
		at.again = b.unplaced(s, w, err) || at.again
	case at.missed:
		b.outbox.remind(node, w.id)
	}
	if node != "" {
		b.countAt(w, node)
	}
	if w.gone.Load() && w.Key == "" && (err == nil || errors.Is(err, lua.ErrOutcomeUnknown)) {
		b.cancel(w) // it gave up while the request was on its way
	}
	if at.again {
		b.place(s.Context, w)
	}
}

// unplaced ends a call that no node has. It reports whether to look for a node again, because a copy of the request has
// arrived.
func (b *Bus) unplaced(s *sending, w *waiter, err error) (again bool) {
	know := b.pending.search(w)
	none := errors.Is(err, ErrNoResponders)
	switch {
	case know.ran && errors.Is(err, lua.ErrNotExecuted):
		return false // the server could not decide: rescue has it asked again
	case know.ran && none: // that is about another node
		err = fmt.Errorf("%w; no other node has it: %v", lostCall(w.method, strings.Join(know.tried, ", ")), err)
	case know.refused != nil && none:
		err = know.refused
	}
	if know.resent && isRefusal(err) {
		arrived, sure := b.withdraw(s, w)
		switch {
		case !sure:
			err = unsure(w.method, err, s.Err())
		case arrived:
			return true
		}
	}
	if errors.Is(err, lua.ErrOutcomeUnknown) && w.Key == "" {
		b.cancel(w)
	}
	b.pending.fail(w, err)
	return false
}

// unsure returns the error of a call that was refused but of which a copy may still run. over is the error that says
// that its time is over.
func unsure(method string, refused, over error) error {
	err := fmt.Errorf("luatomic: call %q: %w: a copy of the request may still arrive; without it: %v", method,
		lua.ErrOutcomeUnknown, refused)
	if over != nil {
		err = fmt.Errorf("%w: %w", err, over)
	}
	return err
}

// isRefusal reports whether an error of a search says that the call has not run.
func isRefusal(err error) bool {
	var refused *RemoteError
	return errors.Is(err, ErrNoResponders) || errors.Is(err, lua.ErrNotExecuted) || errors.As(err, &refused)
}

// withdraw makes the server refuse every copy of the request that has not arrived yet. arrived reports that one has.
// sure is false if the server does not answer. withdraw does nothing for a call with a key, because other callers may
// wait for its reply.
func (b *Bus) withdraw(s *sending, w *waiter) (arrived, sure bool) {
	if w.Key != "" {
		return false, false
	}
	p := b.cancellation(w)
	p.Absent = true
	r, err := rpcscript.Cancel(s, b.client, p)
	return r != rpcscript.CancelResultMissing, err == nil
}

// seek gives the call to a node and returns the node. It returns no node and no error if the outcome of the call is
// known.
func (b *Bus) seek(s *sending, w *waiter) (node string, err error) {
	trust, nap := false, clock.Backoff{First: 50 * time.Millisecond, Last: time.Second}
	var found []rpcscript.FindRow
	again := b.pending.search(w).sent
	for searches, late := 0, 0; ; {
		first, others, none := b.candidates(s, w, &searches, &found)
		if none != nil && !b.decides(w, none) {
			return "", none
		}
		given := time.Now()
		r, err := b.give(s, w, first, others, again, trust)
		if err != nil {
			return "", fmt.Errorf("luatomic: call %q: %w", w.method, err)
		}
		switch r.Outcome {
		case rpcscript.DecideOutcomeSent, rpcscript.DecideOutcomeKnown:
			return r.Node, nil
		case rpcscript.DecideOutcomeFull: // it is not notified, and asks again
			if !clock.Sleep(s, nap.Next()) || s.Err() != nil {
				return r.Node, nil
			}
		case rpcscript.DecideOutcomeLate:
			if late++; late > 2 || s.Err() != nil {
				return "", fmt.Errorf("luatomic: call %q: it arrived after its end and has not run: %w%s", w.method,
					context.DeadlineExceeded, b.pending.whyUnsent(w))
			}
			_ = b.readClock(asking{s}, given)
		case rpcscript.DecideOutcomeNoLease, rpcscript.DecideOutcomeNoSubscriber:
			if none != nil {
				return "", none
			}
			moving := r.Outcome == rpcscript.DecideOutcomeNoSubscriber && b.moving(asking{s})
			if w.targeted() || searches >= maxSearches {
				if trust || !moving {
					return "", refusal(w.method, r.Outcome)
				}
			}
			trust = moving
			b.directory.drop(w.method, append(others, first)...)
		default:
			return "", b.decided(w, r)
		}
	}
}

// decides reports whether the record of the call decides although no node can take the call: the call was sent before,
// and a node may run it or have run it. If that node is alive it keeps the call. Otherwise its reply is refused from
// then on. A call with a key may have been sent by others.
func (b *Bus) decides(w *waiter, err error) bool {
	return isRefusal(err) && !errors.Is(err, lua.ErrNotExecuted) && (w.Key != "" || b.pending.search(w).sent)
}

// decided takes the outcome of a call that was made before.
func (b *Bus) decided(w *waiter, r rpcscript.DecideResult) error {
	switch r.Outcome {
	case rpcscript.DecideOutcomeDone, rpcscript.DecideOutcomeLost:
		if len(r.Frame) == 0 { // another caller with the same key found that the node is dead
			b.pending.fail(w, lostCall(w.method, r.Node))
			return nil
		}
		if err := b.receiveStored(r.Frame); err != nil {
			return unreadable(w.method, "it is kept", err)
		}
		return nil
	case rpcscript.DecideOutcomeOtherRequest:
		return fmt.Errorf("luatomic: call %q: %w", w.method, ErrKeyReused)
	}
	return fmt.Errorf("luatomic: call %q: it was given up: %w", w.method, context.Canceled)
}

// candidates returns the node to ask and the nodes to try after it. If all known nodes were tried, it reads the nodes
// of the method.
func (b *Bus) candidates(
	s *sending, w *waiter, searches *int, found *[]rpcscript.FindRow,
) (first string, others []string, err error) {
	if w.targeted() {
		first, err = b.target(s, w)
		return first, nil, err
	}
	tried := b.pending.search(w).tried
	for {
		if w.Affinity != "" {
			first, others = b.directory.byAffinity(w.method, w.Affinity, tried)
		} else {
			first, others = b.directory.choose(w.method, tried)
		}
		if first != "" && len(tried) < maxTried {
			b.refresh(w.method)
			return first, others, nil
		}
		if *searches++; *searches > maxSearches || *searches > 1 && len(*found) == len(tried) ||
			len(tried) >= maxTried {
			return "", nil, refusal(w.method, reasonOf(*found))
		}
		if *found, err = b.find(asking{s}, b.client, w.method); err != nil {
			return "", nil, fmt.Errorf("luatomic: call %q: %w", w.method, err)
		}
		if first, _ = b.directory.choose(w.method, tried); first != "" {
			continue
		}
		if node := b.reachedWhileMoving(s, *found, tried); node != "" {
			return node, nil, nil
		}
		return "", nil, refusal(w.method, reasonOf(*found))
	}
}

// reachedWhileMoving returns a node that has a lease and no subscriber, while the bus moves to another server.
func (b *Bus) reachedWhileMoving(s *sending, found []rpcscript.FindRow, tried []string) string {
	i := slices.IndexFunc(found, func(r rpcscript.FindRow) bool {
		return r.State == rpcscript.FindStateUnreachable && !slices.Contains(tried, r.Node)
	})
	if i < 0 || !b.moving(asking{s}) {
		return ""
	}
	return found[i].Node
}

// target returns the one node that may have a call. If that node has refused the call, the call is over, unless its
// connection has moved: the server may know the new owner before the owner itself does.
func (b *Bus) target(s *sending, w *waiter) (string, error) {
	if know := b.pending.search(w); know.refused != nil && (!isMoved(know.refused) || know.refusals > maxTried) {
		return "", know.refused
	}
	if w.Connection == "" {
		return w.Node, nil
	}
	owner, err := b.ownerOf(asking{s}, w.Connection)
	if err != nil {
		return "", fmt.Errorf("luatomic: call %q: %w", w.method, err)
	}
	if owner == "" {
		return "", &NoRespondersError{Method: w.method, Reason: reasonNoConnection}
	}
	return owner, nil
}

// give runs the script that records the request and publishes it, together with the requests of other calls at this
// moment. Another script decides the unusual cases.
func (b *Bus) give(
	s *sending, w *waiter, first string, others []string, again, trust bool,
) (rpcscript.DecideResult, error) {
	left := max(time.Until(w.deadline), time.Millisecond)
	keep := left + callGrace
	if w.Key != "" { // it has a time of its own, because others may wait for it
		left = max(left, b.opts.Timeout)
		keep = max(w.Keep, left+callGrace)
	}
	client := b.client
	if w.beside != nil && first != "" { // else no node is given it
		client = b.putBeside(s, w.besideID, w.beside, left+callGrace)
	}
	ends := b.liveness.clock.after(left)
	if !again && !trust {
		r, err := rpcscript.Call(s, client, rpcscript.CallParams{
			Nodes: b.keys.Nodes, Record: w.record, Node: first, Caller: b.Node(), Outbox: b.keys.Outbox, Frame: w.frame,
			Digest: w.digest, Left: left, Ends: ends, Keep: keep, Shard: b.shard,
		})
		err = w.given(s, client, err)
		switch {
		case err != nil || r == rpcscript.CallResultSent:
			return rpcscript.DecideResult{Outcome: rpcscript.DecideOutcomeSent, Node: first}, err
		case r == rpcscript.CallResultLate:
			return rpcscript.DecideResult{Outcome: rpcscript.DecideOutcomeLate}, nil
		}
	}
	r, err := rpcscript.Decide(s, client, rpcscript.DecideParams{
		Nodes: b.keys.Nodes, Record: w.record, Node: first, Others: strings.Join(others, "\n"), Caller: b.Node(),
		Outbox: b.keys.Outbox, Frame: w.frame, Digest: w.digest, Left: left, Ends: ends, Keep: keep,
		Again: w.idempotent && !w.targeted(), Shard: b.shard, Trust: trust,
	})
	return r, w.given(s, client, err)
}

// refusedBy handles the answer of a node that has not run a call, or has left it half-way.
func (b *Bus) refusedBy(a *wire.Answer) {
	method, cause := b.pending.methodOf(a.ID), remoteError(a)
	if method == "" {
		return
	}
	switch a.Failure.Code {
	case CodeOverloaded:
		b.directory.heard(a.Ext.Node, fullLoad+1)
	case CodeNoMethod:
		cause = refusal(method, 0)
		fallthrough
	default:
		b.directory.drop(method, a.Ext.Node)
	}
	for _, w := range b.pending.refuse(a.ID, a.Ext.Node, cause, a.Ext.State == wire.StateHandedOver) {
		b.placeElsewhere(w, a, cause)
	}
}

// placeElsewhere looks for another node for a call that was refused. For a call with a connection it asks for the owner
// again, the first time immediately. A refusal may be faster than the server's answer to the script that sends the
// request, which may be sent once more. So the search also decides the end of a call that has only one node.
func (b *Bus) placeElsewhere(w *waiter, a *wire.Answer, cause error) {
	refusals := b.pending.search(w).refusals
	switch {
	case isMoved(cause) && refusals <= maxTried:
		time.AfterFunc(time.Duration((refusals-1)*(refusals-1))*moveNap, func() { b.place(context.Background(), w) })
	case w.targeted() && a.Ext.State == wire.StateHandedOver:
		b.pending.fail(w, lostCall(w.method, a.Ext.Node))
	default:
		go b.place(context.Background(), w)
	}
}

// isMoved reports whether a node has refused a call because another node owns its connection.
func isMoved(err error) bool {
	var refused *RemoteError
	return errors.As(err, &refused) && refused.Code == CodeNotOwner
}
