package prometheus_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	api "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/canary"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/observe"
	"github.com/luatomic/luatomic/prometheus"
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
		`luatomic_queue_outcomes_total{luatomic_outcome="dead",messaging_destination_name="` + q + `",messaging_system="luatomic"} 2`,
		`luatomic_queue_jobs{luatomic_state="dead",luatomic_tag="",messaging_destination_name="` + q + `",messaging_system="luatomic"} 2`,
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

// A server that is down is a value, not a failed scrape.
func TestScrapeOfADeadServer(t *testing.T) {
	t.Parallel()
	registry := api.NewRegistry()
	m, err := prometheus.New(&prometheus.Options{Registerer: registry})
	require.NoError(t, err)
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, m.Watch(&observe.Census{Client: c}))
	require.Contains(t, scraped(t, registry), "\nluatomic_up 0\n")
}
