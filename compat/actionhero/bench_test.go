package actionhero_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/luatomictest"
)

// pingPong is the minimum of a call over one channel: PUBLISH to a subscriber, and PUBLISH back.
type pingPong struct {
	client  *redis.Client
	channel string
	answers *redis.PubSub
}

func newPingPong(b *testing.B, client *redis.Client, channel string) *pingPong {
	p := &pingPong{client, channel, client.Subscribe(b.Context(), channel+"-back")}
	requests := client.Subscribe(b.Context(), channel+"-there")
	for _, s := range []*redis.PubSub{requests, p.answers} {
		if _, err := s.Receive(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m := range requests.Channel() {
			_ = client.Publish(context.Background(), channel+"-back", m.Payload).Err()
		}
	}()
	b.Cleanup(func() {
		_ = requests.Close()
		_ = p.answers.Close()
		<-done
	})
	return p
}

func (p *pingPong) call(ctx context.Context, text string) error {
	if err := p.client.Publish(ctx, p.channel+"-there", text).Err(); err != nil {
		return err
	}
	_, err := p.answers.ReceiveMessage(ctx)
	return err
}

// BenchmarkCall measures one caller beside PING and a bare ping-pong of messages of the same
// size on the same kind of connections.
func BenchmarkCall(b *testing.B) {
	client, ch := luatomictest.Client(b), luatomictest.Namespace(b)
	server := actionhero.NewNode(client, &actionhero.Options{Channel: ch, OnError: func(err error) { b.Error(err) }})
	caller := actionhero.NewNode(client, &actionhero.Options{Channel: ch})
	alone := actionhero.NewNode(client, &actionhero.Options{Channel: ch + "-alone"})
	for _, n := range []*actionhero.Node{server, caller, alone} {
		runNode(b, n)
	}
	if err := server.Handle("api.echo", echo); err != nil {
		b.Fatal(err)
	}
	raw, text := newPingPong(b, client, ch), strings.Repeat("x", 260)
	for _, bench := range []struct {
		name string
		call func(ctx context.Context) error
	}{
		{"ping", func(ctx context.Context) error { return client.Ping(ctx).Err() }},
		{"raw-publish", func(ctx context.Context) error { return raw.call(ctx, text) }},
		{"call", func(ctx context.Context) error {
			_, err := caller.DoCluster(ctx, "api.echo", []any{1}, "")
			return err
		}},
		{"no-responder", func(ctx context.Context) error {
			if _, err := alone.DoCluster(ctx, "api.echo", nil, ""); err == nil {
				return context.Canceled
			}
			return nil
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bench.call(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("call/callers=256", func(b *testing.B) {
		b.SetParallelism(128)
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if _, err := caller.DoCluster(b.Context(), "api.echo", []any{1}, ""); err != nil {
					b.Error(err, caller.Stats(), server.Stats())
					return
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	})
}

// BenchmarkCache measures each operation beside the commands that ActionHero sends for it.
func BenchmarkCache(b *testing.B) {
	client, ns := luatomictest.Client(b), luatomictest.Namespace(b)
	c, ctx := newCache(client, ns, "me", nil), b.Context()
	lock, item, value := ns+":lock:k", ns+":cache:k", map[string]string{"text": strings.Repeat("x", 300)}
	encoded := `{"value":{"text":"` + strings.Repeat("x", 300) +
		`"},"expireTimestamp":null,"createdAt":1795273331196,"readAt":null}`
	for _, bench := range []struct {
		name string
		run  func() error
	}{
		{"lock+unlock/script", func() error {
			if ok, err := c.Lock(ctx, "k", time.Second); err != nil || !ok {
				return context.Canceled
			}
			_, err := c.Unlock(ctx, "k")
			return err
		}},
		{"lock+unlock/commands", func() error { // of ActionHero: get, setnx, expire; get, del
			client.Get(ctx, lock)
			client.SetNX(ctx, lock, "me", 0)
			client.Expire(ctx, lock, time.Second)
			client.Get(ctx, lock)
			return client.Del(ctx, lock).Err()
		}},
		{"save/script", func() error { return c.Save(ctx, "k", value, time.Minute) }},
		{"save/commands", func() error {
			client.Get(ctx, lock)
			client.Set(ctx, item, encoded, 0)
			return client.Expire(ctx, item, time.Minute).Err()
		}},
		{"save/set", func() error { return client.Set(ctx, item, encoded, time.Minute).Err() }},
		{"load/script", func() error {
			_, err := c.Load(ctx, "k", nil)
			return err
		}},
		{"load/commands", func() error {
			client.Get(ctx, item)
			client.Get(ctx, lock)
			client.Set(ctx, item, encoded, 0)
			return client.Expire(ctx, item, time.Minute).Err()
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bench.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
