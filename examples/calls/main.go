// Command calls is a stock service with two methods, and its client. Each call carries a trace id in a header. The
// client and the node log it, and a handler passes it on in its own calls.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/rpc"
)

// Reservation asks for n pieces of an article.
type Reservation struct {
	Article string
	N       int
}

// The methods, shared by clients and nodes. Left may run twice, so a call to it survives the death of its node.
var (
	left    = rpc.NewMethod[string, int]("stock.left").Idempotent()
	reserve = rpc.NewMethod[Reservation, int]("stock.reserve") // what is left
)

// codeShort is the code of a RemoteError: a client can tell it from other failures.
const codeShort = "short"

// stock is the service. A program would have a database here.
type stock struct {
	mu     sync.Mutex
	pieces map[string]int
}

func (s *stock) left(_ context.Context, article string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pieces[article], nil
}

func (s *stock) reserve(_ context.Context, r Reservation) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.N < 1 {
		return 0, errors.New("at least 1 piece")
	}
	if s.pieces[r.Article] < r.N {
		return 0, &rpc.RemoteError{Code: codeShort, Message: fmt.Sprintf("%d left", s.pieces[r.Article])}
	}
	s.pieces[r.Article] -= r.N
	return s.pieces[r.Article], nil
}

// run is a node: it answers calls until ctx ends. Then it takes no new calls and finishes those that it has.
func run(ctx context.Context, client redis.UniversalClient, name string, s *stock, t *tracer) error {
	bus, err := rpc.New(client, name, t.options())
	if err != nil {
		return err
	}
	if err := errors.Join(left.Serve(bus, s.left, nil), reserve.Serve(bus, s.reserve, nil)); err != nil {
		return err
	}
	if err := bus.Run(ctx); ctx.Err() == nil {
		return err
	}
	return nil // Ctrl-C is no failure
}

// dial connects a client to the bus while f runs.
func dial(ctx context.Context, client redis.UniversalClient, name string, t *tracer,
	f func(context.Context, *rpc.Bus) error) error {
	bus, err := rpc.New(client, name, t.options())
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	running.Go(func() { stop(bus.Run(ctx)) }) // a bus that fails ends f
	defer running.Wait()
	defer stop(nil)
	return f(ctx, bus)
}

// order reserves pieces. Its id is the idempotency key: repeated orders with the same id are one call, within
// CallOptions.Keep, an hour by default.
func order(ctx context.Context, bus *rpc.Bus, id string, r Reservation) (int, error) {
	return reserve.Call(ctx, bus, r, &rpc.CallOptions{Key: id, Retry: 3})
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the server
	err := open(ctx, os.Args[1:])
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func open(ctx context.Context, args []string) error {
	opts, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil { // it repeats the URL, and so the password
		return errors.New("cannot read REDIS_URL; write redis://:PASSWORD@HOST:PORT, and %2F for / and %40 for @ in it")
	}
	if err := reach(ctx, *opts); err != nil {
		return err
	}
	client := redis.NewClient(opts)
	defer func() { _ = client.Close() }()
	t := &tracer{log: log.Printf}
	if len(args) == 1 && args[0] == "serve" {
		return run(ctx, client, "shop", &stock{pieces: map[string]int{"apple": 10, "pear": 5}}, t)
	}
	if len(args) != 3 {
		return errors.New("usage: calls serve, or calls ORDER ARTICLE N")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return fmt.Errorf("%q is no number of pieces; give one, such as 2", args[2])
	}
	return dial(ctx, client, "shop", t, func(ctx context.Context, bus *rpc.Bus) error {
		if _, err := order(ctx, bus, args[0], Reservation{args[1], n}); err != nil {
			return err
		}
		pieces, err := left.Call(ctx, bus, args[1], nil)
		if err == nil {
			fmt.Println(pieces, "left")
		}
		return err
	})
}

// reach fails soon if no server answers: it makes one attempt of a second and a half, where the calls after it make
// many.
func reach(ctx context.Context, opts redis.Options) error {
	ctx, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
	defer cancel()
	opts.MaxRetries, opts.ContextTimeoutEnabled = -1, true
	client := redis.NewClient(&opts)
	defer func() { _ = client.Close() }()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("cannot use REDIS_URL, %s: %w; start a server there, or name another", opts.Addr, err)
	}
	return nil
}
