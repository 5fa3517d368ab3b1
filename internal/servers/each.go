package servers

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/send"
	"github.com/luatomic/luatomic/lua"
)

// EachQueue is Each for queues.
func EachQueue[Q interface {
	Name() string
	Tag() string
}](ctx context.Context, client lua.Client, queues []Q,
	ask func(ctx context.Context, i int) error) []error {
	at := make([]string, len(queues))
	for i, q := range queues {
		named, _ := keys.NewQueue("", q.Tag(), q.Name()) // no prefix: the server follows from the tag alone
		at[i] = named.Listed
	}
	return Each(ctx, client, at, ask)
}

// EachBus is Each for buses, by their names.
func EachBus(ctx context.Context, client lua.Client, names []string,
	ask func(ctx context.Context, i int) error) []error {
	at := make([]string, len(names))
	for i, name := range names {
		named, _ := keys.NewBus("", name) // of another program's name, the question has the error
		at[i] = named.Nodes
	}
	return Each(ctx, client, at, ask)
}

// Each asks something of each key, abreast of those of one server, and of all servers at the same time. A server that
// is away is asked nothing more: all that it has not answered has the same error.
func Each(
	ctx context.Context, client lua.Client, names []string, ask func(ctx context.Context, i int) error,
) []error {
	errs := make([]error, len(names))
	var servers sync.WaitGroup
	for _, of := range byServer(ctx, client, names) {
		servers.Go(func() {
			ctx, end := context.WithCancelCause(ctx)
			defer end(nil)
			send.Abreast(len(of), func(n int) {
				if errs[of[n]] = context.Cause(ctx); errs[of[n]] != nil {
					return
				}
				if errs[of[n]] = ask(ctx, of[n]); Away(errs[of[n]]) {
					end(errs[of[n]])
					errs[of[n]] = context.Cause(ctx)
				}
			})
		})
	}
	servers.Wait()
	return errs
}

// byServer are the numbers of the keys that each server has. A client that does not say which servers it has counts
// as one.
func byServer(ctx context.Context, client lua.Client, names []string) map[string][]int {
	groups := make(map[string][]int)
	for i, key := range names {
		_, name, _ := Of(ctx, client, key) // without a server, the question has the error
		if name == key {
			name = ""
		}
		groups[name] = append(groups[name], i)
	}
	return groups
}

// Away reports an error of a server that does not answer, or not in time, or serves no client now. A slot without a
// server is not that: another server reports it.
func Away(err error) bool {
	var network interface{ Timeout() bool } // what errors of package net have
	switch {
	case redis.HasErrorPrefix(err, "CLUSTERDOWN"):
		return false
	case errors.As(err, &network), redis.HasErrorPrefix(err, "LOADING"), redis.HasErrorPrefix(err, "MASTERDOWN"),
		redis.HasErrorPrefix(err, "BUSY "):
		return true
	}
	for _, known := range []error{context.DeadlineExceeded, context.Canceled, io.EOF, io.ErrUnexpectedEOF,
		redis.ErrPoolTimeout, redis.ErrPoolExhausted} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
