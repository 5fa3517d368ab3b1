package redisinaction_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/internal/launch"
)

// A task that Python executes later, or Go does, runs in Go.
func Example() {
	client, done := connect()
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	app := redisinaction.New(client, nil)
	poller := app.NewPoller(nil)
	go func() { _ = poller.Run(ctx) }()
	if _, err := app.ExecuteLater(ctx, "mail", "send", []any{"ann", "Grüße"}, 20*time.Millisecond); err != nil {
		fmt.Println(err)
	}
	worker, err := app.NewWorker("host-1", []string{"mail"}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = worker.Run(ctx, func(_ context.Context, item redisinaction.Item) error {
		defer cancel() // the example runs one item
		var to, text string
		err := json.Unmarshal(item.Args, &[]any{&to, &text})
		fmt.Println(item.Name, to, text, string(item.Args))
		return err
	})
	// Output: send ann Grüße ["ann", "Gr\u00fc\u00dfe"]
}

func ExampleClient_AcquireLock() {
	client, done := connect()
	defer done()
	ctx := context.Background()
	app := redisinaction.New(client, nil)

	id, err := app.AcquireLock(ctx, "market", &redisinaction.LockOptions{Wait: 10 * time.Second, TTL: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { fmt.Println(app.ReleaseLock(ctx, "market", id)) }()
	fmt.Println("no other process holds the lock, in Python or in Go")
	// Output:
	// no other process holds the lock, in Python or in Go
	// <nil>
}

// connect gives each example a server of its own. A program would write
// redis.NewClient(&redis.Options{Addr: "localhost:6379"}).
func connect() (*redis.Client, func()) {
	server, err := launch.StartEmbedded()
	if err != nil {
		panic(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	return client, func() {
		_ = client.Close()
		server.Close()
	}
}
