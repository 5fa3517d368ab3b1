package sidekiq_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/launch"
)

// Go enqueues for Ruby: one job for now and one for later, in one step, and moves due jobs beside Ruby's pollers.
func Example() {
	server, err := launch.StartEmbedded()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()}) // in a program: the address of Sidekiq's Redis
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	sk, err := sidekiq.New(client, &sidekiq.Options{Version: sidekiq.V8})
	if err != nil {
		panic(err)
	}
	args, err := sidekiq.Args("ann@example.com", 2.0)
	if err != nil {
		panic(err)
	}
	pushed, err := sk.PushBulk(ctx, []sidekiq.Job{
		{Class: "MailJob", Queue: "mail", Args: args},
		{Class: "ReportJob", Args: args, In: 50 * time.Millisecond},
	})
	fmt.Println(pushed.Ready, pushed.Scheduled, err)
	err = sk.NewPoller(&sidekiq.PollerOptions{OnMove: func(set sidekiq.Set, m sidekiq.Moved) {
		fmt.Println("moved", m.Moved, "from", set)
		cancel() // the example moves one job
	}}).Run(ctx)
	fmt.Println(err)
	// Output:
	// 1 1 <nil>
	// moved 1 from schedule
	// context canceled
}

// A push under a token can be retried: the second call with it adds nothing.
func ExampleDialect_PushOnce() {
	server, err := launch.StartEmbedded()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	ctx := context.Background()

	sk, err := sidekiq.New(client, nil)
	if err != nil {
		panic(err)
	}
	invoice := []sidekiq.Job{{Class: "InvoiceJob", Args: []byte(`[42]`), JID: "5f0c3b1de2a94c7788112233"}}
	for range 2 {
		_, err = sk.PushOnce(ctx, "invoice-42", time.Hour, invoice)
		fmt.Println(err)
	}
	fmt.Println(client.LLen(ctx, "queue:default").Val())
	// Output:
	// <nil>
	// <nil>
	// 1
}

func ExampleDialect_Push() {
	client := redis.NewClient(&redis.Options{})
	defer func() { _ = client.Close() }()
	sk, err := sidekiq.New(client, nil)
	if err != nil {
		panic(err)
	}
	_, err = sk.Push(context.Background(), sidekiq.Job{Class: "MailJob", Args: []byte(`{"to":"ann"}`)})
	fmt.Println(errors.Is(err, sidekiq.ErrArgs))
	// Output: true
}
