// Package abreast does things that wait for a server at the same time: of a server that is far away, the answers to a
// hundred questions come in the time of a few.
package abreast

import "sync"

// most is how many are under way at once: few enough for the pool of a client, and for the others on it.
const most = 16

// Each calls f with 0 to n-1, and returns when all calls have ended.
func Each(n int, f func(i int)) {
	var calls sync.WaitGroup
	next := make(chan int)
	for range min(n, most) {
		calls.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	calls.Wait()
}
