package lease

import "sync/atomic"

// Floor is the greatest fence that a Locker or a Quorum knows. Each acquire sends it, so that a server whose clock was
// set back returns no smaller fence. It is safe for concurrent use.
type Floor struct{ fence atomic.Int64 }

// maxFence bounds the fences that Note accepts: the scripts count exactly up to 2^53.
const maxFence = 1<<52 - 1

// Last is the greatest fence that was noted.
func (f *Floor) Last() int64 { return f.fence.Load() }

// Note raises the floor.
func (f *Floor) Note(fence int64) {
	for was := f.fence.Load(); was < fence && fence <= maxFence; was = f.fence.Load() {
		if f.fence.CompareAndSwap(was, fence) {
			return
		}
	}
}
