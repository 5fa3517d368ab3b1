//go:build interop

package sidekiq_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
)

// Ruby writes the floats of a Go payload as the same digits, in each decade and of each length: where they differ, the
// web interface's reschedule adds the job a second time. The JSON that comes with Sidekiq 8 does not always write the
// shortest digits: it agrees on those of few digits that are neither large nor small.
func TestInteropRubyWritesOurNumbers(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		var jobs []sidekiq.Job
		first, last, digits := -25, 25, 17
		if s.d.Version() >= sidekiq.V8 {
			first, last, digits = -9, 14, 3
		}
		for exponent := first; exponent <= last; exponent++ {
			args, err := sidekiq.Args(decade(t, exponent, digits)...)
			require.NoError(t, err)
			jobs = append(jobs, sidekiq.Job{Class: "InteropJob", Args: args})
		}
		_, err := s.d.PushBulk(t.Context(), jobs)
		require.NoError(t, err)
		var texts []any
		for _, text := range s.list("default") {
			texts = append(texts, text)
		}
		require.Len(t, texts, len(jobs))
		s.canonical(texts...)
	})
}

// decade returns floats of one digit and more from 10^exponent to ten times that.
func decade(t *testing.T, exponent, most int) (floats []any) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, uint64(exponent+100)))
	for digits := 1; digits <= most; digits++ {
		for range 20 {
			text := fmt.Sprint(1 + random.IntN(9))
			for i := 1; i < digits; i++ {
				if i == 1 {
					text += "."
				}
				text += fmt.Sprint(random.IntN(10))
			}
			var x float64
			_, err := fmt.Sscan(fmt.Sprintf("%se%d", text, exponent), &x)
			require.NoError(t, err)
			floats = append(floats, x, -x)
		}
	}
	return floats
}
