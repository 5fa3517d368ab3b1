package plainlock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/internal/launch"
)

func Example() {
	server, err := launch.StartEmbedded()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()

	locks := plainlock.New(client, nil)
	defer locks.Close()
	err = locks.Do(context.Background(), "nightly", func(ctx context.Context) error {
		_, err := locks.Try(ctx, "nightly")
		fmt.Println(err != nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}
