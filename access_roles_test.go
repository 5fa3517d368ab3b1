package luatomic_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

var roleEcho = rpc.NewMethod[string, string]("echo")

// roleWork is the work of each role.
var roleWork = map[luatomic.Role]func(t *testing.T, ctx context.Context, client *redis.Client) error{
	luatomic.RoleProducer: func(t *testing.T, ctx context.Context, client *redis.Client) error {
		q := accessQueue(client, "roles", 0)
		_, one := q.Push(ctx, queue.Job{Body: []byte("x")})
		_, many := q.Push(ctx, queue.Job{Unique: "u", Headers: map[string]string{"a": "b"}},
			queue.Job{Delay: time.Millisecond})
		_, once := q.PushOnce(ctx, "token", queue.Job{Body: []byte("y")})
		_, all := queue.PushAll(ctx, queue.Batch{Queue: q, Jobs: []queue.Job{{Body: []byte("z")}}})
		_, counted := q.Stats(ctx)
		return errors.Join(one, many, once, all, counted)
	},
	luatomic.RoleConsumer: func(t *testing.T, ctx context.Context, client *redis.Client) error {
		_, err := accessQueue(client, "roles", 0).Consume(ctx, &queue.ConsumeOptions{Drain: true},
			func(ctx context.Context, d *queue.Delivery) error {
				if err := d.Extend(ctx, time.Minute); err != nil {
					return err
				}
				return queue.Discard(errors.New("no"))
			})
		return err
	},
	luatomic.RoleLock: func(t *testing.T, ctx context.Context, client *redis.Client) error {
		locks := lock.New(client, &lock.Options{Prefix: accessPrefix, Claim: time.Minute})
		defer func() { _ = locks.Close() }()
		held, err := locks.Try(ctx, "roles")
		if err != nil {
			return err
		}
		released := make(chan error, 1)
		go func() {
			for ctx.Err() == nil {
				if info, err := locks.Info(ctx, "roles"); err != nil || info.Waiting > 0 {
					break
				}
			}
			released <- held.Release(ctx)
		}()
		waited := locks.Do(ctx, "roles", func(context.Context, *lock.Lease) error { return nil })
		return errors.Join(waited, <-released)
	},
	luatomic.RoleLimit: func(t *testing.T, ctx context.Context, client *redis.Client) error {
		return lifeOfLimits(ctx, client)
	},
	luatomic.RoleCaller: func(t *testing.T, ctx context.Context, client *redis.Client) error {
		server := client.Options().Addr
		admin := redis.NewClient(&redis.Options{Addr: server})
		defer func() { _ = admin.Close() }()
		return callAs(ctx, admin, client)
	},
	luatomic.RoleNode: func(t *testing.T, ctx context.Context, client *redis.Client) error {
		return callAs(ctx, client, client)
	},
	luatomic.RolePage: func(t *testing.T, ctx context.Context, client *redis.Client) error {
		queues, err := queue.Queues(ctx, client, &queue.Options{Prefix: accessPrefix})
		all := []error{err}
		for _, q := range queues {
			_, stats := q.Stats(ctx)
			_, peek := q.Peek(ctx, queue.Dead, 0, 10)
			_, counts := q.Counts(ctx, 2)
			all = append(all, stats, peek, counts)
		}
		if len(queues) == 0 {
			all = append(all, errors.New("no queue is listed"))
		}
		_, workers := queue.Workers(ctx, client, accessPrefix)
		locks := lock.New(client, &lock.Options{Prefix: accessPrefix})
		_, info := locks.Info(ctx, "roles")
		var listed error
		for _, err := range locks.List(ctx) {
			listed = errors.Join(listed, err)
		}
		bus, err := rpc.New(client, "roles", &rpc.Options{Prefix: accessPrefix})
		if err != nil {
			return err
		}
		_, nodes := bus.Nodes(ctx)
		return errors.Join(append(all, workers, info, listed, nodes)...)
	},
}

// callAs serves as one user and calls as another, with a small and a large body.
func callAs(ctx context.Context, serving, calling *redis.Client) error {
	ctx, stop := context.WithCancel(ctx)
	var ended []chan struct{}
	run := func(client *redis.Client) *rpc.Bus {
		bus, err := rpc.New(client, "roles", &rpc.Options{Prefix: accessPrefix})
		if err != nil {
			panic(err) // the name is valid
		}
		done := make(chan struct{})
		ended = append(ended, done)
		go func() {
			defer close(done)
			_ = bus.Run(ctx)
		}()
		return bus
	}
	node := run(serving)
	err := roleEcho.Serve(node, func(_ context.Context, s string) (string, error) { return s, nil }, nil)
	caller := run(calling)
	err = errors.Join(err, node.Ready(ctx))
	_, small := roleEcho.Call(ctx, caller, "x", nil)
	_, large := roleEcho.Call(ctx, caller, strings.Repeat("x", 100_000), nil)
	_, nodes := caller.Nodes(ctx)
	stop()
	for _, done := range ended {
		<-done
	}
	return errors.Join(err, small, large, nodes)
}

// Each role does its work as its user, also with preloaded scripts, and is refused the work of the others.
func TestRolesDoTheirWorkAndNoOther(t *testing.T) {
	t.Parallel()
	lab.Unmarked(t)
	server := luatomictest.StartServer(t)
	order := luatomic.Roles()
	for _, role := range order {
		opts := &luatomic.AccessOptions{Prefix: accessPrefix, Roles: []luatomic.Role{role}}
		for _, opts.Preloaded = range []bool{false, true} { // the first loads the scripts
			client := asUser(t, server, luatomic.AccessRules(opts))
			ctx, cancel := context.WithTimeout(t.Context(), longBudget)
			require.NoError(t, roleWork[role](t, ctx, client), "%s, preloaded %v", role, opts.Preloaded)
			cancel()
		}
	}
	refused := map[luatomic.Role]string{ // a command of the other roles, on the keys of the prefix
		luatomic.RoleProducer: "LREM {roles}:r 0 x", luatomic.RoleConsumer: "SET lock:{roles} x",
		luatomic.RoleLock: "DEL {roles}:r", luatomic.RoleCaller: "GET {roles}:b", luatomic.RoleNode: "GET lock:{roles}",
		luatomic.RolePage: "SET {roles}:x y",
	}
	for role, command := range refused {
		client := asUser(t, server, luatomic.AccessRules(&luatomic.AccessOptions{
			Prefix: accessPrefix, Roles: []luatomic.Role{role},
		}))
		words := strings.Fields(command)
		words[1] = accessPrefix + words[1]
		args := make([]any, len(words))
		for i, w := range words {
			args[i] = w
		}
		require.ErrorContains(t, client.Do(t.Context(), args...).Err(), "NOPERM", "%s: %s", role, command)
	}
	page := asUser(t, server, luatomic.AccessRules(&luatomic.AccessOptions{
		Prefix: accessPrefix, Roles: []luatomic.Role{luatomic.RolePage},
	}))
	_, err := accessQueue(page, "roles", 0).Push(t.Context(), queue.Job{Body: []byte("x")})
	require.ErrorContains(t, err, "NOPERM")
}

func TestTheRightsOfRolesAreJoined(t *testing.T) {
	t.Parallel()
	both := luatomic.AccessRules(&luatomic.AccessOptions{Roles: []luatomic.Role{luatomic.RoleProducer,
		luatomic.RoleConsumer}})
	require.Contains(t, both, "~{*")
	require.NotContains(t, both, "~lock:{*")
}
