package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
)

// call asks an echo for a body.
type call func(ctx context.Context, body []byte) error

func callRows() []row {
	peers := func(callers, size int) []entrant {
		return []entrant{
			{name: "luatomic", kind: ours, note: "record, accept-once reply, resync after a cut",
				open: calling(callers, size, oursCall)},
			{name: "PUBLISH", kind: raw, note: "nothing is stored; what is lost is lost",
				open: calling(callers, size, rawCall)},
			{name: "NATS", kind: peer, note: "its server is in the client's process; at most once",
				open: calling(callers, size, natsCall)},
		}
	}
	var all []row
	for _, callers := range []int{1, 16, 256} {
		r := row{fmt.Sprintf("call/callers=%d", callers), fmt.Sprintf("calls of 32 B, callers: %d", callers), "per_s",
			peers(callers, 32)}
		if callers == 1 {
			r.main = "p50_us"
		}
		all = append(all, r)
	}
	for _, size := range []int{1000, 10_000, 60_000, 900_000} {
		all = append(all, row{fmt.Sprintf("call/body=%d", size), fmt.Sprintf("calls of %d B both ways, 16 callers",
			size), "per_s", peers(16, size)})
	}
	return append(all, row{"call/nobody", "a call that no node serves, one caller", "p50_us", []entrant{
		{name: "luatomic", kind: ours, open: nobodyOurs},
		{name: "PUBLISH", kind: raw, open: func(b *bench) (work, error) {
			c := b.client(1)
			return b.alone(1, func(ctx context.Context) error { return c.Publish(ctx, b.space, "x").Err() })
		}},
		{name: "NATS", kind: peer, open: nobodyNATS},
	}})
}

func calling(callers, size int, open func(*bench, int) (call, error)) func(*bench) (work, error) {
	return func(b *bench) (work, error) {
		c, err := open(b, callers)
		if err != nil {
			return nil, err
		}
		body := bytes.Repeat([]byte("x"), size)
		if callers == 1 {
			return b.alone(1, func(ctx context.Context) error { return c(ctx, body) })
		}
		return b.together(callers, 1, func(ctx context.Context, _ int) error { return c(ctx, body) })
	}
}

// bytesCodec leaves bodies as they are: the codec is not what is compared.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) {
	body, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("%T is no []byte", v)
	}
	return body, nil
}

func (bytesCodec) Unmarshal(data []byte, v any) error {
	to, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is no *[]byte", v)
	}
	*to = data
	return nil
}

// bus runs a bus until the entrant is done.
func (b *bench) bus(connections int, serve func(*luatomic.Bus) error) (*luatomic.Bus, error) {
	bus, err := luatomic.NewBus(b.client(connections), b.space,
		&luatomic.BusOptions{Codec: bytesCodec{}, Concurrency: 1024, Lease: b.lease})
	if err == nil && serve != nil {
		err = serve(bus)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = bus.Run(ctx)
	}()
	b.close(func() {
		cancel()
		<-done
	})
	return bus, bus.Ready(b.ctx)
}

func oursCall(b *bench, callers int) (call, error) {
	echo := luatomic.NewMethod[[]byte, []byte]("echo")
	if _, err := b.bus(callers, func(bus *luatomic.Bus) error {
		return echo.Serve(bus, func(_ context.Context, body []byte) ([]byte, error) { return body, nil }, nil)
	}); err != nil {
		return nil, err
	}
	caller, err := b.bus(callers, nil)
	return func(ctx context.Context, body []byte) error {
		_, err := echo.Call(ctx, caller, body, nil)
		return err
	}, err
}

func nobodyOurs(b *bench) (work, error) {
	c, err := oursNobody(b)
	if err != nil {
		return nil, err
	}
	return b.alone(1, func(ctx context.Context) error { return c(ctx, nil) })
}

// oursNobody makes calls that no node serves.
func oursNobody(b *bench) (call, error) {
	caller, err := b.bus(1, nil)
	none := luatomic.NewMethod[[]byte, []byte]("none")
	return func(ctx context.Context, body []byte) error {
		if _, err := none.Call(ctx, caller, body, nil); !errors.Is(err, luatomic.ErrNoResponders) {
			return fmt.Errorf("a call that no node serves: %w", err)
		}
		return nil
	}, err
}

// rawCall is the least that two processes need to ask and answer by PUBLISH.
func rawCall(b *bench, callers int) (call, error) {
	node, caller := b.client(callers), b.client(callers)
	ask, answer := b.space+"-ask", b.space+"-answer"
	var mu sync.Mutex
	waiting, serial := make(map[string]chan struct{}), 0
	err := errors.Join(
		b.subscribe(node, ask, func(payload string) { go node.Publish(b.ctx, answer, payload) }),
		b.subscribe(caller, answer, func(payload string) {
			id, _, _ := bytes.Cut([]byte(payload), []byte(" "))
			mu.Lock()
			w := waiting[string(id)]
			delete(waiting, string(id))
			mu.Unlock()
			if w != nil {
				close(w)
			}
		}))
	return func(ctx context.Context, body []byte) error {
		w := make(chan struct{})
		mu.Lock()
		serial++
		id := strconv.Itoa(serial)
		waiting[id] = w
		mu.Unlock()
		if err := caller.Publish(ctx, ask, append([]byte(id+" "), body...)).Err(); err != nil {
			return err
		}
		select {
		case <-w:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Second):
			return errors.New("no answer in 10 s")
		}
	}, err
}

func (b *bench) subscribe(c *redis.Client, channel string, receive func(payload string)) error {
	ps := c.Subscribe(b.ctx, channel)
	b.close(func() { _ = ps.Close() })
	if _, err := ps.Receive(b.ctx); err != nil {
		return err
	}
	go func() {
		for {
			m, err := ps.ReceiveMessage(b.ctx)
			if err != nil {
				return
			}
			receive(m.Payload)
		}
	}()
	return nil
}

// nats starts a server of NATS in this process, and two connections to it over loopback.
func (b *bench) nats() (node, caller *nats.Conn, err error) {
	s, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoLog: true,
		NoSigs: true})
	if err != nil {
		return nil, nil, err
	}
	s.Start()
	b.close(s.Shutdown)
	if !s.ReadyForConnections(10 * time.Second) {
		return nil, nil, errors.New("the NATS server does not come up in 10 s")
	}
	if node, err = nats.Connect(s.ClientURL()); err != nil {
		return nil, nil, err
	}
	b.close(node.Close)
	if caller, err = nats.Connect(s.ClientURL()); err == nil {
		b.close(caller.Close)
	}
	return node, caller, err
}

func natsCall(b *bench, _ int) (call, error) {
	node, caller, err := b.nats()
	if err != nil {
		return nil, err
	}
	if _, err := node.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		return nil, err
	}
	return func(ctx context.Context, body []byte) error {
		_, err := caller.Request("echo", body, 10*time.Second)
		return err
	}, node.Flush()
}

func nobodyNATS(b *bench) (work, error) {
	_, caller, err := b.nats()
	if err != nil {
		return nil, err
	}
	return b.alone(1, func(context.Context) error {
		if _, err := caller.Request("none", nil, 10*time.Second); !errors.Is(err, nats.ErrNoResponders) {
			return fmt.Errorf("a request that no subscriber serves: %w", err)
		}
		return nil
	})
}
