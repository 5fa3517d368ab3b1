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
	lockscript "github.com/luatomic/luatomic/gen/lock"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestScriptsAreAll(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("scripts/*/*.lua")
	require.NoError(t, err)
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasPrefix(f, "scripts/part/") })
	names := make(map[string]bool)
	for _, s := range luatomic.Scripts() {
		names["scripts/"+strings.Replace(s.Name, "_", "/", 1)+".lua"] = true
	}
	require.Len(t, luatomic.Scripts(), len(files))
	for _, f := range files {
		require.Contains(t, names, filepath.ToSlash(f), "add it to Scripts")
	}
}

const accessPrefix = "my* app:"

// asUser resets the user to these rules only.
func asUser(t *testing.T, server *luatomictest.Server, rules []string) *redis.Client {
	t.Helper()
	args := []any{"ACL", "SETUSER", "app", "reset", "on", ">pw"}
	for _, r := range rules {
		args = append(args, r)
	}
	require.NoError(t, server.Client().Do(t.Context(), args...).Err())
	return server.Client(func(o *redis.Options) { o.Username, o.Password, o.MaxRetries = "app", "pw", -1 })
}

// The time that each step of life may wait: long where it must succeed. Where it must fail, it takes all of that
// time.
const (
	longBudget  = 20 * time.Second
	shortBudget = 2 * time.Second
)

// anyName lets a test use names that the package does not build.
var anyName = []string{"allkeys", "allchannels"}

// everyScript calls each script as the fault tests do, until one is refused.
func everyScript(ctx context.Context, admin, client *redis.Client, tag string) error {
	for i, call := range scriptcase.ScriptCalls() {
		k := fmt.Sprint(tag, ".", i)
		if err := call.Prepare(ctx, admin, k); err != nil {
			return err
		}
		if _, err := call.Run(ctx, client, k); err != nil {
			return fmt.Errorf("%s: %w", call.Script.Name, err)
		}
		// A retry takes another path through the script.
		_, err := call.Run(ctx, client, k)
		if errors.Is(err, lua.ErrExecutedInPart) || errors.Is(err, lua.ErrNotExecuted) {
			return fmt.Errorf("%s again: %w", call.Script.Name, err)
		}
	}
	return joinKnowing(ctx, admin, client, tag)
}

// joinKnowing joins the queue of a lock as a waiter does whose process knows how long the lock is held.
func joinKnowing(ctx context.Context, admin, client *redis.Client, tag string) error {
	held := scriptcase.LockOf(scriptcase.WantedOther, time.Hour, scriptcase.EntryOf("x"))
	if err := held(ctx, admin, tag); err != nil {
		return err
	}
	_, err := lockscript.Acquire(ctx, client, lockscript.AcquireParams{
		Lock: "lock:{" + tag + "}", Queue: "lockq:{" + tag + "}", Own: scriptcase.Own("me"), TTL: time.Minute,
		Entry: scriptcase.EntryOf("me"), Fresh: lockscript.AcquireFreshKnows, Channel: "c:" + tag + ":",
	})
	return err
}

func everyAccess() *luatomic.AccessOptions {
	return &luatomic.AccessOptions{Prefix: accessPrefix, Audit: true}
}

func TestAccessRulesSuffice(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client := asUser(t, server, luatomic.AccessRules(everyAccess()))
	require.NoError(t, life(t.Context(), client, longBudget))
	for _, other := range []string{"other", "myx app:{q}:r", "{q}:r", "lock:{x}", accessPrefix + "other"} {
		require.ErrorContains(t, client.Do(t.Context(), "GET", other).Err(), "NOPERM", other)
	}
	for _, other := range []string{"other", "lock:c:1", "{q}:w:1", accessPrefix + "other"} {
		require.ErrorContains(t, client.Publish(t.Context(), other, "hi").Err(), "NOPERM", other)
	}

	require.Equal(t, luatomic.AccessRules(nil), luatomic.AccessRules(&luatomic.AccessOptions{}))
	client = asUser(t, server, append(luatomic.AccessRules(nil), anyName...))
	require.NoError(t, everyScript(t.Context(), server.Client(), client, "a"))
}

// Without any one of the commands or patterns, something fails.
func TestAccessRulesAreTheLeast(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	lab.Unmarked(t)
	server := luatomictest.StartServer(t)
	rules := luatomic.AccessRules(everyAccess())
	for i, rule := range rules {
		if rule == "+unsubscribe" {
			continue // without it a connection only receives unwanted messages
		}
		t.Run(rule, func(t *testing.T) {
			require.NoError(t, server.Client().FlushDB(t.Context()).Err()) // this test's own server
			require.NoError(t, server.Client().ScriptFlush(t.Context()).Err())
			var err error
			if strings.HasPrefix(rule, "+") { // a script is called with any names
				err = everyScript(t.Context(), server.Client(),
					asUser(t, server, append(without(rules, i), anyName...)), "c")
			}
			if err == nil {
				err = life(t.Context(), asUser(t, server, without(rules, i)), shortBudget)
			}
			require.Error(t, err)
		})
	}
}

func without(rules []string, i int) []string {
	return append(append([]string(nil), rules[:i]...), rules[i+1:]...)
}

func TestAccessRulesOnACluster(t *testing.T) {
	lab.Long(t)
	t.Parallel()
	cluster := luatomictest.StartCluster(t)
	opts := everyAccess()
	opts.Cluster = true
	rules := luatomic.AccessRules(opts)
	// Rules that only a cluster needs: without them something fails.
	needed := []string{"", "+cluster|slots", "+pubsub|shardnumsub", "+spublish", "+ssubscribe",
		"&" + `my\*?app:lock:{*`, "&" + `my\*?app:rw:{*`, "&" + `my\*?app:sem:{*`}
	for _, missing := range needed {
		for _, node := range cluster.Nodes() {
			asUser(t, node, slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return r == missing }))
		}
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: "app", Password: "pw"})
		wait := shortBudget
		if missing == "" {
			wait = longBudget
		}
		err := life(t.Context(), client, wait)
		require.NoError(t, client.Close())
		require.Equal(t, missing == "", err == nil, "%q: %v", missing, err)
	}
}

// go-redis sends what some options ask for on each connection. Where that is refused, the client runs no command.
func TestAccessRulesOfClientsWithOptions(t *testing.T) {
	t.Parallel()
	cluster := luatomictest.StartCluster(t)
	single := luatomictest.StartServer(t)
	rules := luatomic.AccessRules(&luatomic.AccessOptions{Cluster: true})
	for rule, client := range map[string]*redis.UniversalOptions{
		"+select":         {Addrs: []string{single.Addr()}, DB: 1},
		"+client|setname": {Addrs: []string{single.Addr()}, ClientName: "x"},
		"+readonly":       {Addrs: cluster.Addrs(), IsClusterMode: true, ReadOnly: true},
	} {
		for _, allowed := range []bool{true, false} {
			given := slices.Clone(rules)
			if allowed {
				given = append(given, rule)
			}
			for _, server := range append(cluster.Nodes(), single) {
				asUser(t, server, given)
			}
			client.Username, client.Password = "app", "pw"
			c := redis.NewUniversalClient(client)
			_, err := lock.New(c, nil).Try(t.Context(), fmt.Sprint(rule, allowed))
			require.NoError(t, c.Close())
			require.Equal(t, allowed, err == nil, "%s: %v", rule, err)
			if !allowed {
				require.ErrorContains(t, err, "NOPERM", "it says why")
			}
		}
	}
}

func TestAccessRulesOfPreloadedScripts(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	opts := everyAccess()
	opts.Preloaded = true
	client := asUser(t, server, luatomic.AccessRules(opts))
	require.ErrorContains(t, life(t.Context(), client, shortBudget), "Preload")
	require.NoError(t, lua.Preload(t.Context(), server.Client(), luatomic.Scripts()...))
	require.NoError(t, life(t.Context(), client, longBudget))
	require.ErrorContains(t, client.Eval(t.Context(), "return 1", nil).Err(), "NOPERM")
}

func TestAccessRulesOfReplicas(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	host, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	luatomictest.StartServer(t, "--replicaof", host+" "+port)
	luatomictest.Eventually(t, 20*time.Second, "the replica is in sync", func() bool {
		info, err := server.Client().Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "state=online")
	})
	for _, allowed := range []bool{true, false} {
		client := asUser(t, server, luatomic.AccessRules(&luatomic.AccessOptions{Replicas: allowed}))
		lease, err := lock.New(client, &lock.Options{Replicas: 1, ReplicaTimeout: 5 * time.Second}).Try(t.Context(),
			"x")
		require.Equal(t, allowed, err == nil, "%v", err)
		if !allowed {
			require.ErrorIs(t, err, lock.ErrNotReplicated)
			require.ErrorContains(t, err, "NOPERM", "it says why")
		} else {
			require.NoError(t, lease.Release(t.Context()))
		}
	}
}
