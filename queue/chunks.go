package queue

import "iter"

// maxIDs bounds the bytes of the ids in one call. Only another program pushes jobs with ids so long that it matters.
const maxIDs = MaxBatchBytes / 2

// chunks yields the items in chunks for one call each, as first has them.
func chunks[T any](items []T, n int, size func(T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for more := true; more && len(items) > 0; {
			chunk := first(items, n, size)
			more, items = yield(chunk), items[len(chunk):]
		}
	}
}

// first returns the items of the first call: at most n, and at most maxIDs bytes unless it is one. So an id that no
// call can name is refused alone.
func first[T any](items []T, n int, size func(T) int) []T {
	end, sum := 1, size(items[0])
	for ; end < min(len(items), n) && sum+size(items[end]) <= maxIDs; end++ {
		sum += size(items[end])
	}
	return items[:end:end]
}

// idSize is the size of a delivery among those of a call.
func idSize(d *Delivery) int { return len(d.ID) }

// textSize is the size of an id among those of a call.
func textSize(id string) int { return len(id) }
