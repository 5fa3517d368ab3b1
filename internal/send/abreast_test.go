package send

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// As many calls as are allowed wait for each other, and never one more.
func TestEachRunsSomeAtOnce(t *testing.T) {
	var running, greatest atomic.Int32
	var together sync.WaitGroup
	together.Add(most)
	called := make([]int, 3*most)
	Abreast(len(called), func(i int) {
		n := running.Add(1)
		defer running.Add(-1)
		for seen := greatest.Load(); n > seen && !greatest.CompareAndSwap(seen, n); seen = greatest.Load() {
		}
		called[i]++
		if i < most {
			together.Done()
			together.Wait()
		}
	})
	require.EqualValues(t, most, greatest.Load())
	for i, n := range called {
		require.Equal(t, 1, n, i)
	}
	Abreast(0, func(int) { t.Error("called without a number") })
}
