package luatomic_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestScriptsAreAll(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("scripts/*.lua")
	require.NoError(t, err)
	names := make(map[string]bool)
	for _, s := range luatomic.Scripts() {
		names[s.Name+".lua"] = true
	}
	require.Len(t, luatomic.Scripts(), len(files))
	for _, f := range files {
		require.Contains(t, names, filepath.Base(f), "add it to Scripts")
	}
}

const accessPrefix = "my* app:"

// asUser makes the user anew, with these rules only.
func asUser(t *testing.T, server *luatomictest.Server, rules []string) *redis.Client {
	t.Helper()
	args := []any{"ACL", "SETUSER", "app", "reset", "on", ">pw"}
	for _, r := range rules {
		args = append(args, r)
	}
	require.NoError(t, server.Client().Do(t.Context(), args...).Err())
	return server.Client(func(o *redis.Options) { o.Username, o.Password, o.MaxRetries = "app", "pw", -1 })
}

// How long each part of a life may wait for others: long where it is to succeed. Where it
// is to fail, that is how long it takes.
const (
	patient   = 20 * time.Second
	impatient = 2 * time.Second
)

type patienceKey struct{}

// patience is that of the life that the context belongs to.
func patience(ctx context.Context) time.Duration { return ctx.Value(patienceKey{}).(time.Duration) }

// life uses the package as programs do: jobs, locks that are waited for, calls.
func life(ctx context.Context, client redis.UniversalClient, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, patienceKey{}, wait), 10*wait)
	defer cancel()
	var all []error
	for _, part := range []func(context.Context, redis.UniversalClient) error{
		lifeOfJobs, lifeOfWorkers, lifeOfDeadWorkers, lifeOfLocks, lifeOfStolenLocks, lifeOfReaders, lifeOfElections, lifeOfCalls,
	} {
		all = append(all, part(ctx, client))
	}
	return errors.Join(append(all, client.Ping(ctx).Err())...)
}

// becomes polls until done or the patience is over.
func becomes(ctx context.Context, done func() bool) bool {
	for start := time.Now(); time.Since(start) < patience(ctx) && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		if done() {
			return true
		}
	}
	return false
}

func accessQueue(client redis.UniversalClient, name string, lease time.Duration) *luatomic.Queue {
	q, err := luatomic.NewQueue(client, name, &luatomic.QueueOptions{Prefix: accessPrefix, Lease: lease})
	if err != nil {
		panic(err) // the name is right
	}
	return q
}

func lifeOfJobs(ctx context.Context, client redis.UniversalClient) error {
	q := accessQueue(client, "q", 0)
	_, pushed := q.Push(ctx, luatomic.Job{Body: []byte("now")}, luatomic.Job{Body: []byte("later"), Delay: time.Hour})
	taken, err := q.Take(ctx, 1)
	if err == nil && len(taken.Deliveries) == 1 {
		err = taken.Deliveries[0].Ack(ctx)
	}
	_, audited := q.Audit(ctx, false)
	locker := luatomic.NewLocker(client, &luatomic.LockerOptions{Prefix: accessPrefix, Tag: "q"})
	lease, locked := locker.Try(ctx, "guard")
	if locked != nil {
		return errors.Join(pushed, err, audited, locked)
	}
	_, guarded := accessQueue(lua.Guard(client, lease), "q", 0).Push(ctx, luatomic.Job{Body: []byte("guarded")})
	return errors.Join(pushed, err, audited, guarded, lease.Release(ctx))
}

// A worker leaves its channel in the queue when it may listen there.
func lifeOfWorkers(ctx context.Context, client redis.UniversalClient) error {
	q := accessQueue(client, "w", 0)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	did := make(chan bool, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = q.Consume(ctx, &luatomic.ConsumeOptions{Idle: time.Hour}, func(context.Context, *luatomic.Delivery) error {
			select {
			case did <- true:
			default: // an ack that was refused brings it again
			}
			return nil
		})
	}()
	var err error
	if !becomes(ctx, func() bool { return client.ZCard(ctx, accessPrefix+"{w}:w").Val() == 1 }) {
		err = errors.New("the worker does not listen")
	}
	_, pushed := q.Push(ctx, luatomic.Job{Body: []byte("now")})
	if pushed == nil && err == nil && !becomes(ctx, func() bool { return len(did) == 1 }) {
		err = errors.New("the job is not done")
	}
	cancel()
	<-ended
	return errors.Join(pushed, err)
}

func lifeOfDeadWorkers(ctx context.Context, client redis.UniversalClient) error {
	q := accessQueue(client, "d", time.Millisecond)
	_, pushed := q.Push(ctx, luatomic.Job{Body: []byte("now")})
	_, taken := q.Take(ctx, 1)
	var reclaimed error
	becomes(ctx, func() bool {
		var r luatomic.Reclaimed
		r, reclaimed = q.Reclaim(ctx)
		return reclaimed != nil || r.Returned > 0
	})
	return errors.Join(pushed, taken, reclaimed)
}

func accessLocker(client redis.UniversalClient) *luatomic.Locker {
	return luatomic.NewLocker(client, &luatomic.LockerOptions{Prefix: accessPrefix, Poll: time.Hour})
}

func lifeOfLocks(ctx context.Context, client redis.UniversalClient) error {
	first, second := accessLocker(client), accessLocker(client)
	defer first.Close()
	defer second.Close()
	lease, err := first.Try(ctx, "x")
	if err != nil {
		return err
	}
	waited := make(chan error, 1)
	go func() {
		// Where it cannot listen it looks once an hour.
		short, cancel := context.WithTimeout(ctx, patience(ctx))
		defer cancel()
		lease, err := second.Acquire(short, "x")
		if err == nil {
			err = lease.Release(ctx)
		}
		waited <- err
	}()
	becomes(ctx, func() bool {
		info, err := first.Info(ctx, "x")
		return err != nil || info.Waiting == 1 || len(waited) > 0
	})
	released := lease.Release(ctx)
	err = <-waited
	for _, listed := range first.List(ctx) {
		err = errors.Join(err, listed)
	}
	return errors.Join(released, err)
}

func lifeOfStolenLocks(ctx context.Context, client redis.UniversalClient) error {
	lease, err := accessLocker(client).Try(ctx, "s")
	if err != nil {
		return err
	}
	stolen, err := accessLocker(client).Steal(ctx, "s")
	if err != nil {
		return err
	}
	if err := lease.Extend(ctx); !errors.Is(err, luatomic.ErrLost) {
		return fmt.Errorf("extend: %w", err)
	}
	return stolen.Release(ctx)
}

func lifeOfReaders(ctx context.Context, client redis.UniversalClient) error {
	first, second := accessLocker(client), accessLocker(client)
	defer first.Close()
	defer second.Close()
	permit, err := first.Semaphore("p", 3).Try(ctx, 2)
	if err != nil {
		return err
	}
	reader, err := first.RW("r").RTry(ctx)
	if err != nil {
		return errors.Join(err, permit.Release(ctx))
	}
	short, cancel := context.WithTimeout(ctx, patience(ctx))
	defer cancel()
	waited := make(chan error, 2)
	wait := func(lease *luatomic.Lease, err error) {
		if err == nil {
			err = lease.Release(ctx)
		}
		waited <- err
	}
	go func() { wait(second.RW("r").Acquire(short)) }()
	go func() { wait(second.Semaphore("p", 3).Acquire(short, 2)) }()
	becomes(ctx, func() bool {
		r, err := first.RW("r").Info(ctx)
		p, _ := first.Semaphore("p", 3).Info(ctx)
		return err != nil || r.Waiting+p.Waiting == 2 || len(waited) > 0
	})
	return errors.Join(reader.Release(ctx), permit.Release(ctx), <-waited, <-waited)
}

// Who observes is told before the lease is over.
func lifeOfElections(ctx context.Context, client redis.UniversalClient) error {
	locker := accessLocker(client)
	defer locker.Close()
	ctx, cancel := context.WithTimeout(ctx, patience(ctx))
	defer cancel()
	leads, err := locker.Election("e").Campaign(ctx, "me")
	if err != nil {
		return err
	}
	for leader, err := range locker.Election("e").Observe(ctx) {
		switch {
		case err != nil:
			return errors.Join(err, leads.Resign(ctx))
		case leader.Fence == 0:
			return nil
		}
		if err := leads.Resign(ctx); err != nil {
			return err
		}
	}
	return errors.New("nobody told of the end of the leader")
}

var accessPing = luatomic.NewMethod[string, string]("ping")

func lifeOfCalls(ctx context.Context, client redis.UniversalClient) error {
	unseen := make(chan error, 100) // what fails in the background
	bus, err := luatomic.NewBus(client, "b", &luatomic.BusOptions{Prefix: accessPrefix, Node: "n", OnError: func(err error) {
		select {
		case unseen <- err:
		default:
		}
	}})
	if err != nil {
		return err
	}
	if err := accessPing.Serve(bus, func(_ context.Context, in string) (string, error) { return in, nil }); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience(ctx))
	defer cancel()
	ran := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	go func() { ran <- bus.Run(running) }()
	_, err = accessPing.Call(ctx, bus, "hi")
	stop()
	<-ran
	for len(unseen) > 0 {
		if e := <-unseen; strings.Contains(e.Error(), "NOPERM") {
			err = errors.Join(err, e)
		}
	}
	return err
}

// anyName lets a test use other names than the package makes.
var anyName = []string{"allkeys", "allchannels"}

// everyScript calls each script as the fault tests do.
func everyScript(ctx context.Context, admin, client *redis.Client, tag string) error {
	var all []error
	for i, call := range scriptCalls() {
		k := fmt.Sprint(tag, ".", i)
		if err := call.prepare(ctx, admin, k); err != nil {
			return err
		}
		if _, err := call.run(ctx, client, k); err != nil {
			all = append(all, fmt.Errorf("%s: %w", call.script.Name, err))
		}
		// A repeat goes another way through the script.
		if _, err := call.run(ctx, client, k); errors.Is(err, lua.ErrExecutedInPart) {
			all = append(all, fmt.Errorf("%s again: %w", call.script.Name, err))
		}
	}
	return errors.Join(all...)
}

func everyAccess() *luatomic.AccessOptions {
	return &luatomic.AccessOptions{Prefix: accessPrefix, Audit: true}
}

func TestAccessRulesSuffice(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client := asUser(t, server, luatomic.AccessRules(everyAccess()))
	require.NoError(t, life(t.Context(), client, patient))
	for _, foreign := range []string{"other", "myx app:{q}:r", "{q}:r", "lock:{x}", accessPrefix + "other"} {
		require.ErrorContains(t, client.Do(t.Context(), "GET", foreign).Err(), "NOPERM", foreign)
	}
	for _, foreign := range []string{"other", "lock:c:1", "{q}:w:1", accessPrefix + "other"} {
		require.ErrorContains(t, client.Publish(t.Context(), foreign, "hi").Err(), "NOPERM", foreign)
	}

	require.Equal(t, luatomic.AccessRules(nil), luatomic.AccessRules(&luatomic.AccessOptions{}))
	client = asUser(t, server, append(luatomic.AccessRules(nil), anyName...))
	require.NoError(t, everyScript(t.Context(), server.Client(), client, "a"))
}

// Without any one of the commands, or of the patterns, something fails.
func TestAccessRulesAreTheLeast(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	rules := luatomic.AccessRules(everyAccess())
	for i, rule := range rules {
		if rule == "+unsubscribe" {
			continue // without it one only hears what nobody wants any more
		}
		t.Run(rule, func(t *testing.T) {
			require.NoError(t, server.Client().FlushDB(t.Context()).Err()) // a server of the test's own
			require.NoError(t, server.Client().ScriptFlush(t.Context()).Err())
			err := everyScript(t.Context(), server.Client(), asUser(t, server, append(without(rules, i), anyName...)), "c")
			if err == nil {
				err = life(t.Context(), asUser(t, server, without(rules, i)), impatient)
			}
			require.Error(t, err)
		})
	}
}

func without(rules []string, i int) []string {
	return append(append([]string(nil), rules[:i]...), rules[i+1:]...)
}

func TestAccessRulesOnACluster(t *testing.T) {
	t.Parallel()
	cluster := luatomictest.StartCluster(t)
	opts := everyAccess()
	opts.Cluster = true
	rules := luatomic.AccessRules(opts)
	// What only a cluster needs: without it something fails.
	needed := []string{"", "+cluster|slots", "+pubsub|shardnumsub", "+spublish", "+ssubscribe", "&" + `my\*?app:lock:{*`, "&" + `my\*?app:rw:{*`, "&" + `my\*?app:sem:{*`}
	for _, missing := range needed {
		for _, node := range cluster.Nodes() {
			asUser(t, node, slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == missing }))
		}
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: "app", Password: "pw"})
		wait := impatient
		if missing == "" {
			wait = patient
		}
		err := life(t.Context(), client, wait)
		require.NoError(t, client.Close())
		require.Equal(t, missing == "", err == nil, "%q: %v", missing, err)
	}
}

func TestAccessRulesOfPreloadedScripts(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	opts := everyAccess()
	opts.Preloaded = true
	client := asUser(t, server, luatomic.AccessRules(opts))
	require.ErrorContains(t, life(t.Context(), client, impatient), "Preload")
	require.NoError(t, lua.Preload(t.Context(), server.Client(), luatomic.Scripts()...))
	require.NoError(t, life(t.Context(), client, patient))
	require.ErrorContains(t, client.Eval(t.Context(), "return 1", nil).Err(), "NOPERM")
}

func TestAccessRulesOfReplicas(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	host, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	luatomictest.StartServer(t, "--replicaof", host+" "+port)
	luatomictest.Eventually(t, 20*time.Second, "the replica follows", func() bool {
		info, err := server.Client().Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "state=online")
	})
	for _, allowed := range []bool{true, false} {
		client := asUser(t, server, luatomic.AccessRules(&luatomic.AccessOptions{Replicas: allowed}))
		lease, err := luatomic.NewLocker(client, &luatomic.LockerOptions{Replicas: 1, ReplicaTimeout: 5 * time.Second}).Try(t.Context(), "x")
		require.Equal(t, allowed, err == nil, "%v", err)
		if !allowed {
			require.ErrorIs(t, err, luatomic.ErrNotReplicated)
			require.ErrorContains(t, err, "NOPERM", "it says why")
		} else {
			require.NoError(t, lease.Release(t.Context()))
		}
	}
}
