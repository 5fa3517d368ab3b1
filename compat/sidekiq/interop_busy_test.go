//go:build interop

package sidekiq_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
)

// The line of a deploy, Sidekiq::ProcessSet.new.each(&:quiet!), raises on no version, and reaches Go and Ruby.
func TestInteropTheBusyPageStopsGoWorkers(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		stopped := make(chan error, 1)
		go func() {
			_, err := s.d.Work(context.WithoutCancel(t.Context()),
				&sidekiq.WorkOptions{WebUI: true, Lease: 600 * time.Millisecond, Queues: []sidekiq.Queue{{Name: "go"}}},
				content)
			stopped <- err
		}()
		endRuby := s.worker("default")
		var page struct {
			Processes []struct{ Identity, Tag, Quiet string }
		}
		quiet := func() (all int) {
			s.ask("processes", nil, &page)
			for _, p := range page.Processes {
				if p.Quiet == "true" {
					all++
				}
			}
			return all
		}
		s.soon("the page shows both", func() bool { return quiet() == 0 && len(page.Processes) == 2 })
		s.ask("signal", map[string]any{"signal": "quiet!"}, nil)
		s.soon("both are quiet", func() bool { return quiet() == 2 })
		_, err := s.d.Push(t.Context(), sidekiq.Job{Class: "InteropJob", Queue: "go"})
		require.NoError(t, err)
		s.ask("signal", map[string]any{"signal": "stop!"}, nil)
		require.ErrorIs(t, <-stopped, sidekiq.ErrStopRequested)
		require.Len(t, s.list("go"), 1, "a quiet process takes nothing")
		endRuby()
	})
}

// What Go performs is on Sidekiq's Metrics page.
func TestInteropTheMetricsPageCountsGo(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		if strings.HasPrefix(s.release, "6") {
			return // it has no metrics
		}
		for range 3 {
			_, err := s.d.Push(t.Context(), sidekiq.Job{Class: "InteropJob"})
			require.NoError(t, err)
		}
		ran := 0
		end := s.work(s.d, &sidekiq.WorkOptions{Concurrency: 1}, func(context.Context, *sidekiq.Delivery) error {
			if ran++; ran == 1 {
				return errors.New("sad")
			}
			return nil
		})
		s.soon("all have run", func() bool { return s.count("stat:processed") == 3 })
		end()
		var top struct{ Jobs map[string]map[string]float64 }
		s.ask("metrics", nil, &top)
		require.Equal(t, []float64{3, 1}, []float64{top.Jobs["InteropJob"]["p"], top.Jobs["InteropJob"]["f"]})
		var histogram struct{ Executions int }
		s.ask("histogram", map[string]any{"class": "InteropJob"}, &histogram)
		require.Equal(t, 2, histogram.Executions)
	})
}

// Ruby divides the polls of schedule and retry among all processes of the page: one of Go that does not poll makes the
// pollers of Ruby slower.
func TestInteropRubyTakesListedGoWorkersForPollers(t *testing.T) {
	withEach(t, func(t *testing.T, s *shop) {
		var pollers struct{ Count int }
		count := func() int {
			s.ask("pollers", nil, &pollers)
			return pollers.Count
		}
		require.Equal(t, 1, count())
		for range 2 {
			s.work(s.d, &sidekiq.WorkOptions{WebUI: true, Lease: 600 * time.Millisecond}, content)
		}
		s.soon("both are counted", func() bool { return count() == 2 })
	})
}
