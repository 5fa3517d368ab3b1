// Command guarded changes a page under a lock. A writer that was paused for longer than its lease does not know that
// another holds the lock now. The scripts that read and store the page know, by the fence: once the other one has read
// the page, they refuse the late writer.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
)

//go:generate go tool luagen

// errStale reports that a later holder of the lock has the page, or that this one has written since.
var errStale = errors.New("the page has a later holder or write; read it and change it anew")

// run changes the text of a page while it holds the page's lock.
func run(ctx context.Context, client redis.UniversalClient, locks *luatomic.Locker, page string,
	change func(text string) string,
) error {
	// The context of the function ends when the lease is lost. That is in time for most writers, but not for all.
	return locks.Do(ctx, page, func(ctx context.Context, lease *luatomic.Lease) error {
		text, err := read(ctx, client, page, lease.Fence())
		if err != nil {
			return err
		}
		return store(ctx, client, page, version{lease.Fence(), 1}, change(text))
	})
}

// read returns the text of a page, empty for a new one, and takes the page from all former holders of the lock.
func read(ctx context.Context, client redis.UniversalClient, page string, fence int64) (string, error) {
	out, err := Read(ctx, client, ReadParams{Page: page, Fence: fence})
	if err == nil && !out.Read {
		err = stale(page, fence, out.Fence)
	}
	return out.Text, err
}

// version orders the writes of a page. Each holder's fence is greater than the last one's, and a holder counts its own
// writes from 1.
type version struct{ fence, n int64 }

// store writes the page unless a holder with a greater fence has it, or this one has written since.
func store(ctx context.Context, client redis.UniversalClient, page string, v version, text string) error {
	out, err := Write(ctx, client, WriteParams{Page: page, Fence: v.fence, N: v.n, Text: text})
	if err == nil && !out.Written {
		err = stale(page, v.fence, out.Fence)
	}
	return err
}

func stale(page string, fence, last int64) error {
	return fmt.Errorf("page %q, fence %d, last holder's %d: %w", page, fence, last, errStale)
}

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: guarded PAGE TEXT...  adds a line to a page")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the server
	err := open(ctx, os.Args[1], strings.Join(os.Args[2:], " "))
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func open(ctx context.Context, page, line string) error {
	opts, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"))
	if err != nil { // it repeats the URL, and so the password
		return errors.New("cannot read REDIS_URL; write redis://:PASSWORD@HOST:PORT, and %2F for / and %40 for @ in it")
	}
	if err := reach(ctx, *opts); err != nil {
		return err
	}
	client := redis.NewClient(opts)
	defer func() { _ = client.Close() }()
	locks := luatomic.NewLocker(client, nil)
	defer func() { _ = locks.Close() }()
	return run(ctx, client, locks, page, func(text string) string {
		log.Printf("%d bytes before", len(text))
		return text + line + "\n"
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
