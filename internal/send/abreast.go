package send

import (
	"sync"
	"sync/atomic"
)

// most bounds the calls at once, so that they do not use up the connection pool of a client.
const most = 16

// Abreast calls f with 0 to n-1, and returns when all calls have ended.
func Abreast(n int, f func(i int)) {
	var calls sync.WaitGroup
	var begun atomic.Int64
	for range min(n, most) {
		calls.Go(func() {
			for i := int(begun.Add(1)) - 1; i < n; i = int(begun.Add(1)) - 1 {
				f(i)
			}
		})
	}
	calls.Wait()
}
