package rpc_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// BenchmarkRPC measures calls beside PING and a bare request and reply by PUBLISH on
// the same kind of connection, each on one goroutine and on 256.
func BenchmarkRPC(b *testing.B) {
	c, name := luatomictest.Client(b), luatomictest.Namespace(b)
	lab.Serving(b, lab.Echo, c, name, &rpc.Options{Concurrency: 512}, func(_ context.Context, s string) (string, error) { return s, nil })
	caller := lab.OpenBus(b, c, name, nil)
	none := rpc.NewMethod[string, string]("none")
	raw := newPingPong(b, c, name)
	for _, bench := range []struct {
		name string
		call func(ctx context.Context) error
	}{
		{"ping", func(ctx context.Context) error { return c.Ping(ctx).Err() }},
		{"raw-publish", raw.call},
		{"call", func(ctx context.Context) error {
			_, err := lab.Echo.Call(ctx, caller, "x")
			return err
		}},
		{"no-responder", func(ctx context.Context) error {
			if _, err := none.Call(ctx, caller, "x"); err == nil {
				return context.Canceled
			}
			return nil
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				lab.Fatal(b, bench.call(b.Context()))
			}
		})
		if bench.name == "ping" || bench.name == "no-responder" {
			continue
		}
		b.Run(bench.name+"/callers=256", func(b *testing.B) {
			b.SetParallelism(128)
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					if err := bench.call(b.Context()); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

// BenchmarkGather asks fifty nodes, one of which takes longer than all others, and
// measures what comes after its handler has returned.
func BenchmarkGather(b *testing.B) {
	c, name := luatomictest.Client(b), luatomictest.Namespace(b)
	const nodes = 50
	var returned atomic.Int64
	for i := range nodes {
		lab.Serving(b, lab.Echo, c, name, nil, func(_ context.Context, s string) (string, error) {
			if i == 0 {
				<-time.After(20 * time.Millisecond)
				returned.Store(time.Now().UnixNano())
			}
			return s, nil
		})
	}
	caller := lab.OpenBus(b, c, name, nil)
	b.Run("ping", func(b *testing.B) {
		for b.Loop() {
			lab.Fatal(b, c.Ping(b.Context()).Err())
		}
	})
	b.Run("nodes=50", func(b *testing.B) {
		var after time.Duration
		for b.Loop() {
			answers := 0
			for _, err := range lab.Echo.Gather(b.Context(), caller, "x") {
				lab.Fatal(b, err)
				answers++
			}
			after += time.Since(time.Unix(0, returned.Load()))
			if answers != nodes {
				b.Fatalf("%d answers", answers)
			}
		}
		b.ReportMetric(float64(after.Microseconds())/float64(b.N), "us-after-slowest")
	})
}

// pingPong is the least that two processes need to ask and answer by PUBLISH: nothing
// is stored, and what is lost is lost.
type pingPong struct {
	c        *redis.Client
	mu       sync.Mutex
	n        int
	waiting  map[string]chan struct{}
	channels [2]string
}

func newPingPong(b *testing.B, c *redis.Client, name string) *pingPong {
	p := &pingPong{c: c, waiting: make(map[string]chan struct{}), channels: [2]string{name + "-ask", name + "-answer"}}
	listen := func(channel string, f func(string)) {
		ps := c.Subscribe(b.Context(), channel)
		if _, err := ps.Receive(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = ps.Close() })
		go func() {
			for {
				m, err := ps.ReceiveMessage(context.Background())
				if err != nil {
					return
				}
				f(m.Payload)
			}
		}()
	}
	listen(p.channels[0], func(id string) { go p.c.Publish(context.Background(), p.channels[1], id) })
	listen(p.channels[1], func(id string) {
		p.mu.Lock()
		w := p.waiting[id]
		delete(p.waiting, id)
		p.mu.Unlock()
		if w != nil {
			close(w)
		}
	})
	return p
}

func (p *pingPong) call(ctx context.Context) error {
	w := make(chan struct{})
	p.mu.Lock()
	p.n++
	id := strconv.Itoa(p.n)
	p.waiting[id] = w
	p.mu.Unlock()
	if err := p.c.Publish(ctx, p.channels[0], id).Err(); err != nil {
		return err
	}
	<-w
	return nil
}
