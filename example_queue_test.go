package luatomic_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/internal/launch"
	"github.com/luatomic/luatomic/lua"
)

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

// A batch of jobs, now and later, is pushed whole; workers lease and ack.
func Example() {
	client, done := connect()
	defer done()
	ctx := context.Background()

	mail, err := luatomic.NewQueue(client, "mail", nil)
	if err != nil {
		panic(err)
	}
	pushed, err := mail.Push(ctx,
		luatomic.Job{Body: []byte(`{"to":"ann"}`)},
		luatomic.Job{Body: []byte(`{"to":"bob"}`), Delay: 20 * time.Millisecond},
	)
	if err != nil {
		panic(err)
	}
	fmt.Println("ready:", pushed.Ready, "scheduled:", pushed.Scheduled)

	out, err := mail.Consume(ctx, &luatomic.ConsumeOptions{Drain: true},
		func(ctx context.Context, d *luatomic.Delivery) error {
			fmt.Println(string(d.Body))
			return nil // acks; an error would give the job back
		})
	fmt.Println("acked:", out.Acked, err)
	// Unordered output:
	// ready: 1 scheduled: 1
	// {"to":"ann"}
	// {"to":"bob"}
	// acked: 2 <nil>
}

// One order adds a job to each of two queues: both are added, or none.
func ExamplePushAll() {
	client, done := connect()
	defer done()
	orders := &luatomic.QueueOptions{Tag: "orders"} // one tag, one slot of a cluster
	bill, err := luatomic.NewQueue(client, "bill", orders)
	if err != nil {
		panic(err)
	}
	mail, err := luatomic.NewQueue(client, "mail", orders)
	if err != nil {
		panic(err)
	}
	pushed, err := luatomic.PushAll(context.Background(),
		luatomic.QueueBatch{Queue: bill, Jobs: []luatomic.Job{{ID: "order 7", Body: []byte("12.50")}}},
		luatomic.QueueBatch{Queue: mail, Jobs: []luatomic.Job{{ID: "order 7", Delay: time.Hour}, {ID: "order 7"}}},
	)
	if err != nil {
		panic(err)
	}
	fmt.Println("bill:", pushed[0].Ready, "ready")
	fmt.Println("mail:", pushed[1].Scheduled, "scheduled,", len(pushed[1].Duplicates), "twice")
	// Output:
	// bill: 1 ready
	// mail: 1 scheduled, 1 twice
}

// One consumer has two queues: no mail is sent while a bill waits.
func ExampleConsumeAll() {
	client, done := connect()
	defer done()
	ctx := context.Background()
	orders := &luatomic.QueueOptions{Tag: "orders"}
	bill, err := luatomic.NewQueue(client, "bill", orders)
	if err != nil {
		panic(err)
	}
	mail, err := luatomic.NewQueue(client, "mail", orders)
	if err != nil {
		panic(err)
	}
	_, err = luatomic.PushAll(ctx,
		luatomic.QueueBatch{Queue: mail, Jobs: []luatomic.Job{{Body: []byte("1")}, {Body: []byte("2")}}},
		luatomic.QueueBatch{Queue: bill, Jobs: []luatomic.Job{{Body: []byte("3")}, {Body: []byte("4")}}},
	)
	if err != nil {
		panic(err)
	}
	out, err := luatomic.ConsumeAll(ctx, &luatomic.ConsumeOptions{Concurrency: 1, Drain: true},
		func(ctx context.Context, d *luatomic.Delivery) error {
			fmt.Println(d.Queue().Name(), string(d.Body))
			return nil
		},
		luatomic.QueueSource{Queue: bill}, luatomic.QueueSource{Queue: mail}, // with a Weight each: at random
	)
	fmt.Println("acked:", out.Acked, err)
	// Output:
	// bill 3
	// bill 4
	// mail 1
	// mail 2
	// acked: 4 <nil>
}

// A push whose reply was lost can be repeated, from another process too: under
// the same token nothing is added twice.
func ExampleQueue_PushOnce() {
	client, done := connect()
	defer done()
	ctx := context.Background()
	q, _ := luatomic.NewQueue(client, "import", nil)

	for range 3 {
		pushed, err := q.PushOnce(ctx, "file-2024-06-01", luatomic.Job{ID: "row-1"}, luatomic.Job{ID: "row-2"})
		fmt.Println(pushed.Ready, err)
	}
	stats, _ := q.Stats(ctx)
	fmt.Println("in the queue:", stats.Ready)
	// Output:
	// 2 <nil>
	// 2 <nil>
	// 2 <nil>
	// in the queue: 2
}

// A worker that takes jobs by hand acks each, or gives it back.
func ExampleQueue_Take() {
	client, done := connect()
	defer done()
	ctx := context.Background()
	q, _ := luatomic.NewQueue(client, "work", nil)
	_, _ = q.Push(ctx, luatomic.Job{ID: "a"}, luatomic.Job{ID: "b"})

	taken, _ := q.Take(ctx, 10)
	for _, d := range taken.Deliveries {
		if d.ID == "a" {
			fmt.Println("ack", d.ID, d.Ack(ctx))
		} else {
			fmt.Println("nack", d.ID, d.Nack(ctx, time.Minute, "not yet"))
		}
	}
	fmt.Println("late ack lost:", errors.Is(taken.Deliveries[1].Ack(ctx), luatomic.ErrLeaseLost))
	// Output:
	// ack a <nil>
	// nack b <nil>
	// late ack lost: true
}

// A Poller promotes due jobs where no consumer does.
func ExamplePoller() {
	client, done := connect()
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	q, _ := luatomic.NewQueue(client, "reports", nil)
	_, _ = q.Push(ctx, luatomic.Job{Delay: 10 * time.Millisecond})

	poller := luatomic.NewPoller(&luatomic.PollerOptions{
		OnPromote: func(q *luatomic.Queue, p luatomic.Promoted) {
			fmt.Println("moved", p.Moved)
			cancel()
		},
	}, q)
	fmt.Println(poller.Run(ctx))
	// Output:
	// moved 1
	// context canceled
}

// An error says what has changed.
func ExampleQueue_Push_errors() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	q, _ := luatomic.NewQueue(client, "mail", nil)

	_, err := q.Push(ctx, luatomic.Job{})
	fmt.Println("nothing happened:", errors.Is(err, lua.ErrNotExecuted))
	_, err = q.Push(ctx, make([]luatomic.Job, 1001)...)
	fmt.Println(err)
	// Output:
	// nothing happened: true
	// luatomic: push to "mail": queue_push: too large: job: 1001 items, at most 1000 in one call
}
