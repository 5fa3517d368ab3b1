package luatomic_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic"
)

type sumRequest struct{ Numbers []int }

// A call reaches one live node, or reports after one round trip that there is none.
func ExampleMethod_Call() {
	client, done := connect()
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	sum := luatomic.NewMethod[sumRequest, int]("sum")

	bus, _ := luatomic.NewBus(client, "math", nil)
	ran := make(chan error)
	go func() { ran <- bus.Run(ctx) }()
	_, err := sum.Call(ctx, bus, sumRequest{}, nil)
	fmt.Println(errors.Is(err, luatomic.ErrNoResponders))

	node, _ := luatomic.NewBus(client, "math", nil)
	_ = sum.Serve(node, func(ctx context.Context, in sumRequest) (int, error) {
		total := 0
		for _, n := range in.Numbers {
			total += n
		}
		return total, nil
	}, nil)
	go func() { ran <- node.Run(ctx) }()
	_ = node.Ready(ctx)
	fmt.Println(sum.Call(ctx, bus, sumRequest{Numbers: []int{1, 2, 3}}, nil))
	cancel()
	<-ran
	<-ran
	// Output:
	// true
	// 6 <nil>
}
