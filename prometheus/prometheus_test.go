package prometheus_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/canary"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/observe"
	"github.com/luatomic/luatomic/prometheus"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// scraped is what a Prometheus server reads.
func scraped(t *testing.T, registry *api.Registry) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	return w.Body.String()
}

// Each instrument has a series under its name after the scene, and none shows a content.
func TestScrapeShowsTheSceneAndNoContent(t *testing.T) {
	t.Parallel()
	c, name, registry := luatomictest.Client(t), luatomictest.Namespace(t), api.NewRegistry()
	m, err := prometheus.New(&prometheus.Options{Registerer: registry})
	require.NoError(t, err)
	o := m.Bus(rpc.Options{})
	p := canary.Play(t, c, name, canary.Scene{Job: m.Job, Lock: m.Lock, Served: o.Wrap[0], Called: o.WrapCall[0]})
	require.NoError(t, m.Watch(&observe.Census{Client: c, Prefix: name, Buses: map[string]*rpc.Bus{"stock": p.Bus}}))
	text, q := "\n"+scraped(t, registry), p.Queue.Name()
	for _, i := range observe.Instruments() {
		require.Contains(t, text, "\n# HELP "+i.PrometheusName()+" ")
	}
	for _, want := range []string{
		`luatomic_queue_outcomes_total{luatomic_outcome="dead",luatomic_tag="",messaging_destination_name="` + q +
			`",messaging_system="luatomic"} 2`,
		`luatomic_queue_jobs{luatomic_state="dead",luatomic_tag="",messaging_destination_name="` + q +
			`",messaging_system="luatomic"} 2`,
		`rpc_server_call_duration_seconds_count{error_type="not_found",rpc_method="look_up",rpc_system_name="luatomic"} 1`,
		`luatomic_lock_queued_total{luatomic_lock_group=""} 1`, `luatomic_rpc_nodes{luatomic_bus="stock"} 1`,
		"\nluatomic_up 1\n",
	} {
		require.Contains(t, text, want)
	}
	for _, secret := range p.Secrets {
		require.NotContains(t, text, secret)
	}
	_, err = prometheus.New(&prometheus.Options{Registerer: registry})
	require.Error(t, err, "the names are taken")
}

// A name that another library has taken registers nothing: once it is free, a second New succeeds.
func TestNewRegistersAllOrNothing(t *testing.T) {
	t.Parallel()
	registry := api.NewRegistry()
	other := api.NewHistogramVec(api.HistogramOpts{
		Name: "rpc_server_call_duration_seconds", Help: "Time that handlers of calls took.",
	}, []string{"rpc_system_name", "rpc_method", "error_type"})
	registry.MustRegister(other)
	_, err := prometheus.New(&prometheus.Options{Registerer: registry})
	require.ErrorContains(t, err, "rpc_server_call_duration_seconds")
	registry.Unregister(other)
	_, err = prometheus.New(&prometheus.Options{Registerer: registry})
	require.NoError(t, err)
}

// The queues of two prefixes are told apart by a label of their registerers: within one, a second census is refused.
func TestTwoCensusesNeedTwoLabels(t *testing.T) {
	t.Parallel()
	c, registry := luatomictest.Client(t), api.NewRegistry()
	for _, app := range []string{"a", "b"} {
		prefix := luatomictest.Namespace(t) + app
		q, err := queue.New(c, "mail", &queue.Options{Prefix: prefix})
		require.NoError(t, err)
		_, err = q.Push(t.Context(), queue.Job{})
		require.NoError(t, err)
		m, err := prometheus.New(&prometheus.Options{
			Registerer: api.WrapRegistererWith(api.Labels{"app": app}, registry),
		})
		require.NoError(t, err)
		require.NoError(t, m.Watch(&observe.Census{Client: c, Prefix: prefix}))
		require.ErrorContains(t, m.Watch(&observe.Census{Client: c}), "WrapRegistererWith")
	}
	text := scraped(t, registry)
	for _, app := range []string{"a", "b"} {
		require.Regexp(t, `luatomic_queue_jobs{app="`+app+`",luatomic_state="ready".* 1\n`, text)
	}
}

// A queue whose name is not text ends neither the process that consumes it nor a scrape.
func TestNameThatIsNotTextIsScraped(t *testing.T) {
	t.Parallel()
	c, prefix, registry := luatomictest.Client(t), luatomictest.Namespace(t), api.NewRegistry()
	m, err := prometheus.New(&prometheus.Options{Registerer: registry})
	require.NoError(t, err)
	q, err := queue.New(c, "caf\xe9", &queue.Options{Prefix: prefix, Observe: m.Job})
	require.NoError(t, err)
	_, err = q.Push(t.Context(), queue.Job{})
	require.NoError(t, err)
	nothing := func(context.Context, *queue.Delivery) error { return nil }
	_, err = q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true}, nothing)
	require.NoError(t, err)
	require.NoError(t, m.Watch(&observe.Census{Client: c, Prefix: prefix}))
	text := scraped(t, registry)
	for _, name := range []string{"luatomic_queue_outcomes_total{", "luatomic_queue_jobs{"} {
		require.Regexp(t, name+`.*messaging_destination_name="caf\\\\xe9"`, text)
	}
}

// Two queues whose names look alike as labels are two series, and end no scrape.
func TestTwoNamesAreTwoSeries(t *testing.T) {
	t.Parallel()
	c, prefix, registry := luatomictest.Client(t), luatomictest.Namespace(t), api.NewRegistry()
	m, err := prometheus.New(&prometheus.Options{Registerer: registry})
	require.NoError(t, err)
	for _, name := range []string{"a\xe9", `a\xe9`} {
		q, err := queue.New(c, name, &queue.Options{Prefix: prefix})
		require.NoError(t, err)
		_, err = q.Push(t.Context(), queue.Job{})
		require.NoError(t, err)
	}
	require.NoError(t, m.Watch(&observe.Census{Client: c, Prefix: prefix}))
	text := scraped(t, registry)
	for _, label := range []string{`"a\\\\xe9"`, `"a\\\\x5cxe9"`} {
		require.Regexp(t, `luatomic_queue_jobs{.*"ready".*messaging_destination_name=`+label, text)
	}
	require.Contains(t, text, "\nluatomic_up 1\n")
}

// A series that a census gives twice ends no scrape: the first is shown, and luatomic_up says that something is wrong.
func TestASeriesThatComesTwiceIsShownOnce(t *testing.T) {
	t.Parallel()
	registry := api.NewRegistry()
	var why error
	m, err := prometheus.New(&prometheus.Options{Registerer: registry, OnError: func(err error) { why = err }})
	require.NoError(t, err)
	gauge := slices.IndexFunc(observe.Instruments(), func(i *observe.Instrument) bool {
		return i.Name == "luatomic.rpc.nodes"
	})
	require.NoError(t, prometheus.WatchFunc(m, func(ctx context.Context, to observe.Recorder) error {
		for value, bus := range []string{"stock", "stock", "mail"} {
			to.Record(ctx, observe.Instruments()[gauge], float64(value), bus)
		}
		return nil
	}))
	text := scraped(t, registry)
	require.Contains(t, text, `luatomic_rpc_nodes{luatomic_bus="stock"} 0`)
	require.Contains(t, text, `luatomic_rpc_nodes{luatomic_bus="mail"} 2`)
	require.Contains(t, text, "\nluatomic_up 0\n")
	require.ErrorContains(t, why, `luatomic.rpc.nodes ["stock"]`)
}

// A server that is down is a value, not a failed scrape; OnError gets why.
func TestScrapeOfADeadServer(t *testing.T) {
	t.Parallel()
	registry := api.NewRegistry()
	var why []error
	m, err := prometheus.New(&prometheus.Options{Registerer: registry, OnError: func(err error) {
		why = append(why, err)
	}})
	require.NoError(t, err)
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, m.Watch(&observe.Census{Client: c}))
	require.Contains(t, scraped(t, registry), "\nluatomic_up 0\n")
	require.Len(t, why, 1)
	require.ErrorContains(t, why[0], "connection refused")
}

// A server that hangs delays a scrape by Timeout, whatever time the client has for a read.
func TestScrapeOfAServerThatHangsEndsInTime(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.StartServer(t).URL())
	c := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = c.Close() })
	registry := api.NewRegistry()
	m, err := prometheus.New(&prometheus.Options{Registerer: registry, Timeout: 100 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, m.Watch(&observe.Census{Client: c, Prefix: "x"}))
	luatomictest.Eventually(t, 20*time.Second, "a scrape in time", func() bool {
		return strings.Contains(scraped(t, registry), "luatomic_up 1")
	})
	proxy.Blackhole(true)
	began := time.Now()
	require.Contains(t, scraped(t, registry), "luatomic_up 0")
	require.Less(t, time.Since(began), 30*time.Second, "the client itself waits for a minute")
}
