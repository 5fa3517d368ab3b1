package otel_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/observe"
	"github.com/luatomic/luatomic/otel"
)

// A server that hangs costs the gauges alone: a collection drops all measurements of the process if its own time ends,
// and one for a scrape has none.
func TestCollectionBesideAServerThatHangsEndsInTime(t *testing.T) {
	t.Parallel()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.StartServer(t).URL())
	c := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = c.Close() })
	reader := sdkmetric.NewManualReader()
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	telemetry, err := otel.New(&otel.Options{MeterProvider: meters, Timeout: 100 * time.Millisecond})
	require.NoError(t, err)
	_, err = telemetry.Watch(&observe.Census{Client: c, Prefix: "x"})
	require.NoError(t, err)
	own, err := meters.Meter("program").Int64Counter("program.own")
	require.NoError(t, err)
	own.Add(t.Context(), 1)
	require.NoError(t, c.Ping(t.Context()).Err())
	proxy.Blackhole(true)
	within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var got metricdata.ResourceMetrics
	require.ErrorIs(t, reader.Collect(within, &got), context.DeadlineExceeded)
	require.NoError(t, within.Err(), "the client itself waits for a minute")
	text, err := json.Marshal(got)
	require.NoError(t, err)
	require.Contains(t, string(text), "program.own")
}
