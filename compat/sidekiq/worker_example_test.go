package sidekiq_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/launch"
)

// A job that Ruby enqueues with GreetJob.perform_async("Ann", 2) runs in Go.
func ExampleDialect_Work() {
	server, err := launch.StartEmbedded()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()}) // in a program: the address of Sidekiq's Redis
	ctx, cancel := context.WithCancel(context.Background())
	client.LPush(ctx, "queue:default",
		`{"retry":true,"queue":"default","class":"GreetJob","args":["Ann",2],"jid":"b9f8a6a0c2d34e5f60718293"}`)

	d, err := sidekiq.New(client, &sidekiq.Options{Version: sidekiq.V7})
	if err != nil {
		panic(err)
	}
	greet := func(_ context.Context, job *sidekiq.Delivery) error {
		defer cancel() // the example performs one job
		var name string
		var times int
		if err := job.Scan(&name, &times); err != nil {
			return sidekiq.Kill(err) // no retry can help
		}
		fmt.Println("hello", name, times)
		return nil
	}
	worked, err := d.Work(ctx, &sidekiq.WorkOptions{Queues: []sidekiq.Queue{{Name: "default"}}},
		sidekiq.Handlers{"GreetJob": greet}.Perform)
	fmt.Println(worked.Done, err)
	// Output:
	// hello Ann 2
	// 1 context canceled
}
