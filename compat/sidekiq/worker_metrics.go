package sidekiq

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/send"
)

// metrics counts executions for Sidekiq's Metrics page between two heartbeats.
type metrics struct {
	mu      sync.Mutex
	classes map[string]*classMetrics
}

// classMetrics are the counts of one class. As in Sidekiq, only executions without an error have a duration.
type classMetrics struct {
	performed, failed, ms int64
	histogram             [len(histogramLimits) + 1]int64
}

// histogramLimits are the upper bounds of the histogram's buckets in ms; slower jobs are in the last bucket.
var histogramLimits = [...]int64{
	20, 30, 45, 65, 100, 150, 225, 335, 500, 750, 1100, 1700, 2500, 3800, 5750, 8500, 13_000, 20_000, 30_000, 45_000,
	65_000, 100_000, 150_000, 225_000, 335_000,
}

func (m *metrics) note(j *Delivery, took time.Duration, err error) {
	class := j.Class
	if j.Wrapped != "" {
		class = j.Wrapped
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.classes == nil {
		m.classes = make(map[string]*classMetrics)
	}
	c := m.classes[class]
	if c == nil {
		c = &classMetrics{}
		m.classes[class] = c
	}
	c.performed++
	if err != nil {
		c.failed++
		return
	}
	ms := took.Milliseconds()
	c.ms += ms
	bucket := 0
	for bucket < len(histogramLimits) && ms >= histogramLimits[bucket] {
		bucket++
	}
	c.histogram[bucket]++
}

func (m *metrics) take() map[string]*classMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.classes
	m.classes = nil
	return out
}

// How long Sidekiq keeps metrics of a minute and of ten.
const (
	minuteMetrics = 8 * time.Hour
	tenMinutes    = 3 * 24 * time.Hour
)

// flushMetrics adds the counts since the last call to those of the minute, by this machine's clock as in Ruby, in one
// pipeline. What a call cannot write is lost, so the end of the heartbeats does not cut it short; what it may have
// written is not added again. Sidekiq 6 has no metrics.
func (w *worker) flushMetrics() error {
	classes := w.metrics.take()
	if len(classes) == 0 || w.d.version < V7 {
		return nil
	}
	ctx, cancel := context.WithTimeout(w.calls, 5*time.Second)
	defer cancel()
	p, now := w.d.client.Pipeline(), time.Now().UTC()
	for class, c := range classes {
		w.d.addMetrics(ctx, p, now, class, c)
	}
	if _, err := p.Exec(ctx); err != nil {
		return fmt.Errorf("sidekiq: metrics: %w", err)
	}
	return nil
}

func (d *Dialect) addMetrics(ctx context.Context, p redis.Pipeliner, now time.Time, class string, c *classMetrics) {
	add := func(args ...any) { _ = p.Process(ctx, send.NewOnce(ctx, args...)) }
	slots := d.key(d.histogramKey(now, class))
	histogram := []any{"BITFIELD", slots, "OVERFLOW", "SAT"}
	for i, n := range c.histogram {
		if n > 0 {
			histogram = append(histogram, "INCRBY", "u16", "#"+strconv.Itoa(i), n)
		}
	}
	if c.performed > c.failed {
		add(histogram...)
		p.Expire(ctx, slots, minuteMetrics)
	}
	for key, keep := range d.metricsKeys(now) {
		key = d.key(key)
		add("HINCRBY", key, class+"|p", c.performed)
		if c.failed > 0 {
			add("HINCRBY", key, class+"|f", c.failed)
		}
		if c.performed > c.failed {
			add("HINCRBY", key, class+"|ms", c.ms)
		}
		p.Expire(ctx, key, keep)
	}
}

// metricsKeys returns the keys of a time and how long they are kept. Sidekiq 7 writes "j|20250214|8:3" for 08:03,
// Sidekiq 8 "j|250214|8:03", and "j|250214|8:0" for the ten minutes.
func (d *Dialect) metricsKeys(now time.Time) map[string]time.Duration {
	hour := strconv.Itoa(now.Hour())
	if d.version < V8 {
		return map[string]time.Duration{
			"j|" + now.Format("20060102") + "|" + hour + ":" + strconv.Itoa(now.Minute()): minuteMetrics,
		}
	}
	minute := "j|" + now.Format("060102") + "|" + hour + ":" + now.Format("04")
	return map[string]time.Duration{minute: minuteMetrics, minute[:len(minute)-1]: tenMinutes}
}

// histogramKey returns "Class-14-08:3" for 08:03 of the 14th, in Sidekiq 8 "h|Class-14-8:3".
func (d *Dialect) histogramKey(now time.Time, class string) string {
	minute := ":" + strconv.Itoa(now.Minute())
	if d.version < V8 {
		return class + "-" + now.Format("02-15") + minute
	}
	return "h|" + class + "-" + strconv.Itoa(now.Day()) + "-" + strconv.Itoa(now.Hour()) + minute
}
