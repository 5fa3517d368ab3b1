package actionhero_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/internal/launch"
)

// connect gives each example a server of its own. A program would write
// redis.NewClient(&redis.Options{Addr: "localhost:6379"}), the Redis of the ActionHero
// processes.
func connect() (*redis.Client, func()) {
	server, err := launch.StartEmbedded()
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	return client, func() {
		_ = client.Close()
		server.Close()
	}
}

// A key of api.cache, locked against the ActionHero processes while it is changed.
func ExampleCache() {
	client, done := connect()
	defer done()
	ctx := context.Background()
	cache := actionhero.NewCache(client, &actionhero.CacheOptions{LockName: "go-worker-1"})

	ok, err := cache.Lock(ctx, "report:7", 10*time.Second)
	if err != nil || !ok {
		log.Fatal("another process has it", err)
	}
	if err := cache.Save(ctx, "report:7", map[string]int{"rows": 42}, time.Minute); err != nil {
		log.Fatal(err)
	}
	item, err := cache.Load(ctx, "report:7", nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(item.Value))
	if _, err := cache.Unlock(ctx, "report:7"); err != nil {
		log.Fatal(err)
	}
	// Output: {"rows":42}
}

// A method in Go, called as api.redis.doCluster('api.reports.rows', [7], ...) calls it.
func ExampleNode() {
	client, done := connect()
	defer done()
	ctx, stop := context.WithCancel(context.Background())
	node := actionhero.NewNode(client, &actionhero.Options{ServerToken: "change-me", Era: actionhero.Promise})
	_ = node.Handle("api.reports.rows", func(ctx context.Context, r *actionhero.Request) (any, error) {
		var id int
		if err := r.Bind(&id); err != nil {
			return nil, err
		}
		return 6 * id, nil
	})
	ended := make(chan error)
	go func() { ended <- node.Run(ctx) }()

	response, err := node.DoCluster(ctx, "api.reports.rows", []any{7}, "") // all nodes; the first response
	if err != nil {
		log.Fatal(err)
	}
	var rows int
	if err := response.Decode(&rows); err != nil {
		log.Fatal(err)
	}
	fmt.Println(rows)

	stop()
	<-ended
	// Output: 42
}
