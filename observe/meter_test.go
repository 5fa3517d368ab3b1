package observe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/internal/testkit/canary"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/observe"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

// recorder keeps the sum and the number of values of each series.
type recorder struct {
	mu    sync.Mutex
	sum   map[string]float64
	count map[string]int
}

func newRecorder() *recorder { return &recorder{sum: map[string]float64{}, count: map[string]int{}} }

func (r *recorder) Record(_ context.Context, i *observe.Instrument, v float64, labels ...string) {
	if len(labels) != len(i.Labels) {
		panic(fmt.Sprintf("%s: %d labels of %d", i.Name, len(labels), len(i.Labels)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	series := strings.Join(append([]string{i.Name}, labels...), " ")
	r.sum[series] += v
	r.count[series]++
}

func TestMeterCountsTheScene(t *testing.T) {
	t.Parallel()
	for !countsTheScene(t) {
		t.Log("a UTC day ended during the scene, and its counts of today with it")
	}
}

// countsTheScene is false where a UTC day ended meanwhile.
func countsTheScene(t *testing.T) bool {
	today := func() int { return time.Now().UTC().YearDay() }
	day := today()
	c, name, r := luatomictest.Client(t), luatomictest.Namespace(t), newRecorder()
	m := observe.NewMeter(r, &observe.MeterOptions{LockGroup: func(name string) string {
		group, _, _ := strings.Cut(name, ":")
		return group
	}})
	p := canary.Play(t, c, name, canary.Scene{Job: m.Job, Lock: m.Lock, Served: m.Served, Called: m.Called})
	q := p.Queue.Name()
	for series, n := range map[string]int{
		"messaging.process.duration luatomic " + q + "  process ":              1,
		"messaging.process.duration luatomic " + q + "  process error":         2,
		"messaging.process.duration luatomic " + q + "  process held":          1,
		"messaging.client.consumed.messages luatomic " + q + "  process error": 2,
		"luatomic.queue.outcomes luatomic " + q + "  acked":                    1,
		"luatomic.queue.outcomes luatomic " + q + "  retried":                  1,
		"luatomic.queue.outcomes luatomic " + q + "  dead":                     2,
		"luatomic.queue.wait.duration luatomic " + q + " ":                     4,
		"luatomic.lock.wait.duration invoice":                                  2,
		"luatomic.lock.queued invoice":                                         1,
		"luatomic.lock.hold.duration invoice ":                                 2,
		"luatomic.lock.hold.duration lost lease_lost":                          1,
		"rpc.server.call.duration luatomic look_up ":                           1,
		"rpc.server.call.duration luatomic look_up not_found":                  1,
		"rpc.client.call.duration luatomic look_up ":                           1,
		"rpc.client.call.duration luatomic look_up not_found":                  1,
	} {
		require.Equal(t, n, r.count[series], "%s in %v", series, r.count)
	}

	census := observe.Census{Client: c, Prefix: name, Buses: map[string]*rpc.Bus{"stock": p.Bus}}
	luatomictest.Eventually(t, 10e9, "the consumers have reported", func() bool {
		r = newRecorder()
		require.NoError(t, census.Read(t.Context(), r))
		return r.sum["luatomic.queue.today luatomic "+q+"  processed"] == 1 || today() != day
	})
	if today() != day {
		return false
	}
	require.EqualValues(t, 2, r.sum["luatomic.queue.jobs luatomic "+q+"  dead"])
	require.EqualValues(t, 0, r.sum["luatomic.queue.jobs luatomic "+q+"  ready"])
	require.EqualValues(t, 3, r.sum["luatomic.queue.today luatomic "+q+"  failed"])
	require.Positive(t, r.sum["luatomic.queue.dead.size luatomic "+q+" "])
	require.EqualValues(t, 1, r.sum["luatomic.rpc.nodes stock"])
	for series := range r.count {
		for _, secret := range p.Secrets {
			require.NotContains(t, series, secret)
		}
	}
	return true
}

// Names are bytes, labels are text: a Prometheus client panics at others.
func TestLabelsAreText(t *testing.T) {
	t.Parallel()
	const name, label = "caf\xe9", `caf\xe9`
	c, prefix, r := luatomictest.Client(t), luatomictest.Namespace(t), newRecorder()
	m := observe.NewMeter(r, &observe.MeterOptions{LockGroup: func(name string) string { return name }})
	m.Job(queue.Event{Queue: name, Tag: name, Outcome: queue.OutcomeAcked})
	m.Lock(lock.Event{Kind: lock.EventQueued, Name: name})
	q, err := queue.New(c, name, &queue.Options{Prefix: prefix, Tag: name})
	require.NoError(t, err)
	_, err = q.Push(t.Context(), queue.Job{})
	require.NoError(t, err)
	census := observe.Census{Client: c, Prefix: prefix}
	require.NoError(t, census.Read(t.Context(), r))
	for _, series := range []string{
		"luatomic.queue.outcomes luatomic " + label + " " + label + " acked", "luatomic.lock.queued " + label,
		"luatomic.queue.jobs luatomic " + label + " " + label + " ready",
	} {
		require.Equal(t, 1, r.count[series], r.count)
	}
	for series := range r.count {
		require.True(t, utf8.ValidString(series), series)
	}
}

// A code of a handler is a label only if it is a short identifier: free text would make one series for each value.
func TestErrorTypesAreFewWords(t *testing.T) {
	t.Parallel()
	require.Empty(t, observe.ErrorType(nil))
	require.Equal(t, "timeout", observe.ErrorType(fmt.Errorf("get: %w", context.DeadlineExceeded)))
	require.Equal(t, "overloaded", observe.ErrorType(&rpc.RemoteError{Code: rpc.CodeOverloaded}))
	for _, code := range []string{"", "order 17 is not there", "ORDER", strings.Repeat("a", 33)} {
		require.Equal(t, "error", observe.ErrorType(&rpc.RemoteError{Code: code}), code)
	}
}

// The dashboard asks only for series that exist, by labels that they have, and each of its panels asks for one. Queues
// of one name are apart, and so are the calls of other systems.
func TestDashboardAsksForRealMetrics(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/grafana.json")
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	labels := map[string][]string{"luatomic_up": nil} // of each series
	for _, i := range observe.Instruments() {
		var of []string
		for _, l := range i.Labels {
			of = append(of, show.PrometheusLabel(l))
		}
		labels[i.PrometheusName()] = of
		if i.Sort == observe.Histogram {
			labels[i.PrometheusName()+"_bucket"], labels[i.PrometheusName()+"_count"] = of, of
		}
	}
	word := regexp.MustCompile(`(?:messaging|rpc|luatomic)_[a-z_]+|error_type`)
	asked := make(map[string]bool)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			found := word.FindAllString(target.Expr, -1)
			at := slices.IndexFunc(found, func(w string) bool { _, is := labels[w]; return is })
			require.GreaterOrEqual(t, at, 0, "%s asks for no series: %q", p.Title, found)
			series := found[at]
			asked[series] = true
			require.Subset(t, append(labels[series], series), found, p.Title)
			if !strings.HasPrefix(series, "luatomic_") { // other libraries have series of this name
				require.Regexp(t, series+`{(messaging_system|rpc_system_name)="luatomic"`, target.Expr, p.Title)
			}
			byQueue := slices.Contains(found, "messaging_destination_name")
			require.Equal(t, byQueue, slices.Contains(found, "luatomic_tag"), p.Title)
		}
	}
	require.Contains(t, asked, "luatomic_up", "the gauges stand still or have gaps if it is 0")
	require.GreaterOrEqual(t, len(asked), 15)
}

// A delivery whose handler did not begin has no run time: neither a job that expired nor one that was cancelled or lost
// before. One whose worker died has no known wait either.
func TestDeliveryWithoutARunHasNoRunTime(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	m := observe.NewMeter(r, nil)
	for _, outcome := range []queue.Outcome{queue.OutcomeExpired, queue.OutcomeCancelled, queue.OutcomeLost} {
		m.Job(queue.Event{Queue: "q", Outcome: outcome, Wait: time.Millisecond})
	}
	m.Job(queue.Event{Queue: "q", Outcome: queue.OutcomeDead, Err: queue.ErrLeaseLost})
	for series := range r.count {
		require.NotContains(t, series, "process.duration")
	}
	require.Equal(t, 3, r.count["luatomic.queue.wait.duration luatomic q "])
}

// A job that waited for no time counts as one: else the histogram is that of the jobs that had to wait. A clock that
// was set back makes such jobs.
func TestAWaitOfZeroIsCounted(t *testing.T) {
	t.Parallel()
	r := newRecorder()
	m := observe.NewMeter(r, nil)
	m.Job(queue.Event{Queue: "q", Outcome: queue.OutcomeAcked, Run: time.Millisecond})
	m.Job(queue.Event{Queue: "q", Outcome: queue.OutcomeRetried, Run: time.Millisecond, Err: queue.ErrLeaseLost})
	m.Job(queue.Event{Queue: "q", Outcome: queue.OutcomeExpired})
	m.Job(queue.Event{Queue: "q", Outcome: queue.OutcomeDead, Err: queue.ErrLeaseLost}) // its worker died
	require.Equal(t, 3, r.count["luatomic.queue.wait.duration luatomic q "])
}
