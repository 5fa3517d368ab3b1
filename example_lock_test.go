package luatomic_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/luatomic/luatomic"
)

// Do runs a function under a lock; its context ends if the lock is lost.
func ExampleLocker_Do() {
	client, done := connect()
	defer done()
	locks := luatomic.NewLocker(client, &luatomic.LockerOptions{TTL: 5 * time.Second, Note: "worker-1"})

	err := locks.Do(context.Background(), "invoice:42", func(ctx context.Context, lease *luatomic.Lease) error {
		_, err := locks.Try(ctx, "invoice:42")
		var held *luatomic.HeldError
		fmt.Println("second holder:", errors.As(err, &held), held.Holder)
		return nil // write with lease.Fence(), so that the store can refuse a holder whose lease is over
	})
	fmt.Println(err)
	// Output:
	// second holder: true worker-1
	// <nil>
}

// At most eight slots of a GPU are in use at a time; this job takes two of them.
func ExampleLocker_Semaphore() {
	client, done := connect()
	defer done()
	locks := luatomic.NewLocker(client, &luatomic.LockerOptions{TTL: 10 * time.Second, Note: "worker-7"})
	defer func() { _ = locks.Close() }()

	err := locks.Semaphore("gpu", 8).Do(context.Background(), 2,
		func(ctx context.Context, lease *luatomic.Lease) error {
			info, err := locks.Semaphore("gpu", 8).Info(ctx)
			fmt.Println("used:", info.Used, "of", info.Limit)
			return err
		})
	fmt.Println(err)
	// Output:
	// used: 2 of 8
	// <nil>
}

// Many readers hold the lock together, a writer alone.
func ExampleLocker_RW() {
	client, done := connect()
	defer done()
	ctx := context.Background()
	locks := luatomic.NewLocker(client, nil)
	defer func() { _ = locks.Close() }()

	prices := locks.RW("prices")
	err := prices.RDo(ctx, func(ctx context.Context, _ *luatomic.Lease) error {
		_, err := prices.Try(ctx) // to write
		fmt.Println("held:", errors.Is(err, luatomic.ErrHeld))
		return nil
	})
	fmt.Println(err)
	err = prices.Do(ctx, func(_ context.Context, lease *luatomic.Lease) error {
		fmt.Println("writes under a fence:", lease.Fence() > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// held: true
	// <nil>
	// writes under a fence: true
	// <nil>
}

// One of the processes leads; when it ends or dies, the next one does.
func ExampleLocker_Election() {
	client, done := connect()
	defer done()
	ctx := context.Background()
	locks := luatomic.NewLocker(client, nil)
	defer func() { _ = locks.Close() }()

	scheduler := locks.Election("scheduler")
	err := scheduler.Lead(ctx, "web-1", func(ctx context.Context, _ *luatomic.Leadership) error {
		leader, err := scheduler.Leader(ctx)
		fmt.Println("leads:", leader.Value)
		return err // ctx ends when the leadership does
	})
	fmt.Println(err)
	// Output:
	// leads: web-1
	// <nil>
}
