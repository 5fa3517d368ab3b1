package lock_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// What a history of locks is made of. Only what succeeded is in it, and what may
// have: a refusal is always allowed, as a lease can end at any time.
const (
	didAcquire = iota // fence
	didExtend         // called at
	didRelease
	didSteal      // fence; without an answer it is given back
	didWrite      // the counter that the guarded script returned
	unsureRelease // without an answer
	unsureSteal
	unsureWrite
)

// lockOp is one operation; times are µs of the one clock that server and clients of
// the test share.
type lockOp struct {
	what     int
	name     string
	fence    int64 // of the lease
	called   int64
	returned int64
	n        int64 // what was read back
}

// lockState is what the model knows of one lock.
type lockState struct {
	fence   int64 // the greatest given out
	free    bool
	until   int64 // the lease lasts at least until then
	counter int64
}

// lockModel allows what a lock may do: fences only grow, a lock is acquired when the
// last lease was released or is over by the server's clock, and only the last holder
// extends, or writes under the guard. A lease begins at its fence or later. The fence
// does not say when the script found the last lease over: it reads the clock before,
// and a server that gets no time in between, with a clock that goes on during a script,
// as in Redis 7.0, can find so many ms later. It is not later than the reply.
func lockModel(ttl time.Duration) porcupine.Model {
	lease := ttl.Microseconds()
	const slack = 1000 // the server counts leases in ms
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{lockState{free: true}} },
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byName := make(map[string][]porcupine.Operation)
			for _, op := range history {
				name := op.Input.(lockOp).name
				byName[name] = append(byName[name], op)
			}
			var parts [][]porcupine.Operation
			for _, part := range byName {
				parts = append(parts, part)
			}
			return parts
		},
		Step: func(state, input, _ any) []any {
			s, op := state.(lockState), input.(lockOp)
			mine := op.fence == s.fence && !s.free
			next := s
			switch op.what {
			case didAcquire, didSteal:
				over := s.free || op.returned >= s.until-slack
				if op.fence <= s.fence || op.what == didAcquire && !over {
					return nil
				}
				next.fence, next.free, next.until = op.fence, false, op.fence+lease
			case didExtend:
				if !mine {
					return nil
				}
				next.until = max(s.until, op.called+lease)
			case didRelease, unsureRelease:
				// "Released by you" may come after others had it since.
				if op.fence > s.fence {
					return nil
				}
				next.free = s.free || mine
			case unsureSteal:
				next.free = true
			case didWrite:
				if !mine || op.n != s.counter+1 {
					return nil
				}
				next.counter++
			case unsureWrite:
				if mine {
					next.counter++
				}
			}
			if op.what >= unsureRelease && next != s {
				return []any{s, next}
			}
			return []any{next}
		},
	}
	return model.ToModel()
}

// lockHistory collects operations.
type lockHistory struct {
	start time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func newLockHistory() *lockHistory { return &lockHistory{start: time.Now()} }

func (h *lockHistory) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// has reports whether there is at least one of each kind.
func (h *lockHistory) has(kinds ...int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, kind := range kinds {
		if !slices.ContainsFunc(h.ops, func(op porcupine.Operation) bool { return op.Input.(lockOp).what == kind }) {
			return false
		}
	}
	return true
}

// add records an operation that was called at the time and has just returned.
func (h *lockHistory) add(client int, called time.Time, op lockOp) {
	op.called, op.returned = called.UnixMicro(), time.Now().UnixMicro()
	end := time.Since(h.start)
	if op.what >= unsureRelease {
		end += 3 * time.Second // a server that gets no time may run what it was sent later
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: client, Input: op, Call: int64(called.Sub(h.start)), Return: int64(end),
	})
}

// whereItFails is what of the history the model explains last, and the operations of that lock around it.
func whereItFails(model porcupine.Model, history []porcupine.Operation) string {
	for _, part := range model.Partition(history) {
		result, info := porcupine.CheckOperationsVerbose(model, part, time.Minute)
		if result != porcupine.Illegal {
			continue
		}
		var longest []porcupine.Operation
		for _, explained := range info.PartialLinearizationsOperations()[0] {
			if len(explained) > len(longest) {
				longest = explained
			}
		}
		text := fmt.Sprintf("%d of %d operations are explained, the last of them:\n", len(longest), len(part))
		for _, op := range longest[max(0, len(longest)-6):] {
			text += describe(op)
		}
		text += "all that were under way in the 100 ms before and after:\n"
		at := longest[len(longest)-1].Return
		slices.SortFunc(part, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		for _, op := range part {
			if near := int64(100 * time.Millisecond); op.Call < at+near && op.Return > at-near {
				text += describe(op)
			}
		}
		return text
	}
	return ""
}

func describe(op porcupine.Operation) string {
	return fmt.Sprintf("%v to %v: client %d: %+v\n", time.Duration(op.Call), time.Duration(op.Return), op.ClientId,
		op.Input)
}
