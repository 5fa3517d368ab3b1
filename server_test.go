package luatomic_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// prompt is a client whose calls end with their contexts.
func prompt(o *redis.Options) { o.ContextTimeoutEnabled = true }

// A client with go-redis' defaults is named, with what it means.
func TestCheckServerNamesSlowTimeouts(t *testing.T) {
	t.Parallel()
	c := inspected(t, luatomictest.Client(t))["timeouts"]
	require.Equal(t, luatomic.CheckFailed, c.Verdict)
	require.Contains(t, c.Detail, "ContextTimeoutEnabled of the client is off")
	require.Contains(t, c.Detail, luatomictest.Client(t).Options().ReadTimeout.String()+" after its server hangs")
	endless := luatomictest.Client(t, func(o *redis.Options) { o.ReadTimeout = -1 })
	require.Contains(t, inspected(t, endless)["timeouts"].Detail, "does not return while its server hangs")
	require.Equal(t, luatomic.CheckPassed, inspected(t, luatomictest.Client(t, prompt))["timeouts"].Verdict)
}

// warned returns the checks that found something.
func warned(ctx context.Context, client redis.UniversalClient) ([]luatomic.ServerCheck, error) {
	checks, err := luatomic.CheckServer(ctx, client)
	return slices.DeleteFunc(checks, func(c luatomic.ServerCheck) bool { return !c.Warns() }), err
}

// inspected returns the checks of a server by name.
func inspected(t *testing.T, client redis.UniversalClient) map[string]luatomic.ServerCheck {
	t.Helper()
	checks, err := luatomic.CheckServer(t.Context(), client)
	require.NoError(t, err)
	byName := make(map[string]luatomic.ServerCheck)
	for _, c := range checks {
		require.NotEmpty(t, c.Detail, c.Check)
		require.Equal(t, c.Verdict == luatomic.CheckPassed, c.Cure == "", "%+v", c)
		byName[c.Check] = c
	}
	require.Len(t, byName, 9)
	return byName
}

func TestCheckServerPasses(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes")
	warnings, err := warned(t.Context(), server.Client(prompt))
	require.NoError(t, err)
	require.Empty(t, warnings)
	for name, c := range inspected(t, server.Client(prompt)) {
		require.Equal(t, luatomic.CheckPassed, c.Verdict, name)
		require.Equal(t, server.Addr(), c.Node)
	}
}

// A server above its maxmemory refuses what makes data, whatever its policy is. Buffers that it does not count are left
// out.
func TestCheckServerFindsAFullServer(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes")
	client := server.Client(prompt)
	require.Equal(t, "there is no maxmemory", inspected(t, client)["memory"].Detail)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	require.Regexp(t, `^[0-9] % of maxmemory is used$`, inspected(t, client)["memory"].Detail)
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.Error(t, client.Set(t.Context(), "x", "1", 0).Err())
	warnings, err := warned(t.Context(), client)
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Equal(t, "memory", warnings[0].Check)
	require.Contains(t, warnings[0].Detail, "the server is full")
	require.Contains(t, warnings[0].Cure, "raise its maxmemory")

	const counted = "maxmemory:100\r\nused_memory:150\r\nmem_not_counted_for_evict:50"
	c := inspected(t, answers(t, counted, 0))["memory"]
	require.Equal(t, "100 % of maxmemory is used", c.Detail)
	for used, verdict := range map[int]luatomic.Verdict{
		79: luatomic.CheckPassed, 80: luatomic.CheckWarned, 94: luatomic.CheckWarned, 95: luatomic.CheckFailed,
	} {
		c := inspected(t, answers(t, fmt.Sprintf("maxmemory:100\r\nused_memory:%d", used), 0))["memory"]
		require.Equal(t, verdict, c.Verdict, used)
		require.Equal(t, verdict == luatomic.CheckPassed, c.Cure == "", used)
	}
}

// A server that has as many clients as it takes refuses the next one. Replicas and the links of a cluster count too.
func TestCheckServerFindsAServerWithoutRoomForClients(t *testing.T) {
	t.Parallel()
	alone := func(o *redis.Options) { o.PoolSize = 1 }
	client := luatomictest.StartServer(t, "--appendonly", "yes").Client(prompt, alone)
	require.Regexp(t, `^1 of at most \d+ connections$`, inspected(t, client)["clients"].Detail)
	require.NoError(t, client.ConfigSet(t.Context(), "maxclients", "1").Err())
	next := redis.NewClient(client.Options())
	require.Error(t, next.Ping(t.Context()).Err())
	require.NoError(t, next.Close())
	warnings, err := warned(t.Context(), client)
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Equal(t, "clients", warnings[0].Check)
	require.Equal(t, "1 of at most 1 connections: the server refuses more", warnings[0].Detail)
	require.Contains(t, warnings[0].Cure, "raise maxclients")

	const counted = "maxclients:10\r\nconnected_clients:3\r\nconnected_slaves:2\r\ncluster_connections:4"
	require.Equal(t, "9 of at most 10 connections", inspected(t, answers(t, counted, 0))["clients"].Detail)
}

// A master with min-replicas-to-write and no good replica refuses every write, and must not pass as a sound one.
func TestCheckServerFindsAMasterThatWaitsForReplicas(t *testing.T) {
	t.Parallel()
	client := luatomictest.StartServer(t, "--appendonly", "yes").Client(prompt)
	require.NoError(t, client.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	require.ErrorContains(t, client.Set(t.Context(), "x", "1", 0).Err(), "NOREPLICAS")
	c := inspected(t, client)["replication"]
	require.Equal(t, luatomic.CheckFailed, c.Verdict)
	require.Contains(t, c.Detail, "refuses all writes")
	require.Contains(t, c.Cure, "min-replicas-to-write")

	require.NoError(t, client.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
	require.Equal(t, luatomic.CheckPassed, inspected(t, client)["replication"].Verdict)
}

// Every policy but noeviction deletes locks: they have a TTL.
func TestCheckServerWarnsOfEviction(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes")
	client := server.Client(prompt)
	for _, policy := range []string{"allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu",
		"volatile-random", "volatile-ttl"} {
		require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
		warnings, err := warned(t.Context(), client)
		require.NoError(t, err)
		require.Len(t, warnings, 1, policy)
		require.Equal(t, "eviction", warnings[0].Check)
		require.Contains(t, warnings[0].Detail, "maxmemory-policy "+policy+" deletes locks")
		require.Equal(t, strings.HasPrefix(policy, "allkeys-"), strings.Contains(warnings[0].Detail, "jobs"))
		require.Contains(t, warnings[0].Detail, "no maxmemory yet")
		require.Contains(t, warnings[0].String(), "eviction of "+server.Addr()+": maxmemory-policy "+policy)
		require.Contains(t, warnings[0].String(), "noeviction")
	}
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "100mb").Err())
	require.NotContains(t, inspected(t, client)["eviction"].Detail, "no maxmemory")
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	require.Equal(t, luatomic.CheckPassed, inspected(t, client)["eviction"].Verdict)
}

func TestCheckServerWarnsOfLostData(t *testing.T) {
	t.Parallel()
	client := luatomictest.StartServer(t).Client()
	c := inspected(t, client)["persistence"]
	require.Equal(t, luatomic.CheckFailed, c.Verdict)
	require.Contains(t, c.Detail, "a restart loses all jobs and locks")
	require.NoError(t, client.ConfigSet(t.Context(), "save", "3600 1").Err())
	c = inspected(t, client)["persistence"]
	require.Equal(t, luatomic.CheckPassed, c.Verdict)
	require.Contains(t, c.Detail, "save 3600 1")
}

func TestCheckServerWarnsOfAReplica(t *testing.T) {
	t.Parallel()
	master := luatomictest.StartServer(t)
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	replica := luatomictest.StartServer(t, "--replicaof", host+" "+port)
	c := inspected(t, replica.Client())["replication"]
	require.Equal(t, luatomic.CheckFailed, c.Verdict)
	require.Contains(t, c.Detail, "a replica of "+master.Addr())
	luatomictest.Eventually(t, 20*time.Second, "the master lists its replica", func() bool {
		return inspected(t, master.Client())["replication"].Detail == "master, replicas: 1"
	})
}

func TestCheckServerOnACluster(t *testing.T) {
	t.Parallel()
	cluster := luatomictest.StartCluster(t)
	checks, err := luatomic.CheckServer(t.Context(), cluster.Client())
	require.NoError(t, err)
	nodes := make(map[string]int)
	for _, c := range checks {
		nodes[c.Node]++
		if c.Check == "cluster" {
			require.Equal(t, luatomic.CheckPassed, c.Verdict, c.Detail)
		}
	}
	require.Len(t, nodes, 3)
	for node, n := range nodes {
		require.Equal(t, 9, n, node)
	}

	single := cluster.Nodes()[0].Client()
	c := inspected(t, single)["cluster"]
	require.Equal(t, luatomic.CheckFailed, c.Verdict)
	require.Contains(t, c.Cure, "ClusterClient")

	require.NoError(t, single.Do(t.Context(), "CLUSTER", "DELSLOTS", 0).Err())
	checks, err = luatomic.CheckServer(t.Context(), cluster.Client())
	require.NoError(t, err)
	failed := 0
	for _, c := range checks {
		if c.Check == "cluster" && c.Verdict == luatomic.CheckFailed {
			require.Regexp(t, `state \w+, 1638\d of 16384 slots`, c.Detail)
			failed++
		}
	}
	require.NotZero(t, failed)
}

// A user without INFO gets no warnings, and each check has a cure.
func TestCheckServerThatDoesNotTell(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	ctx := t.Context()
	require.NoError(t, server.Client().Do(ctx, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-info",
		"-config", "-time", "-cluster").Err())
	client := server.Client(func(o *redis.Options) {
		o.Username, o.Password, o.ContextTimeoutEnabled = "app", "pw", true
	})
	for name, c := range inspected(t, client) {
		if name == "timeouts" {
			continue // that is of the client
		}
		require.Equal(t, luatomic.CheckUnknown, c.Verdict, name)
		require.NotEmpty(t, c.Cure)
	}
	warnings, err := warned(ctx, client)
	require.NoError(t, err)
	require.Empty(t, warnings)

	require.NoError(t, server.Client().Do(ctx, "ACL", "SETUSER", "app", "+info").Err())
	c := inspected(t, client)["persistence"]
	require.Equal(t, luatomic.CheckUnknown, c.Verdict)
	require.Contains(t, c.Detail, "does not report whether it makes snapshots")
}

// answers returns a client of a server with given answers: other versions, other clocks.
func answers(t *testing.T, info string, ahead time.Duration) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(answerHook{info: info, ahead: ahead})
	return client
}

type answerHook struct {
	info  string
	ahead time.Duration
}

func (answerHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h answerHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		switch c := cmd.(type) {
		case *redis.TimeCmd:
			c.SetVal(time.Now().Add(h.ahead))
		case *redis.StringCmd:
			if c.Name() == "info" {
				c.SetVal(h.info)
			}
		case *redis.MapStringStringCmd:
			c.SetVal(map[string]string{"save": "3600 1"})
		}
		return nil
	}
}

func (h answerHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			_ = h.ProcessHook(nil)(ctx, cmd)
		}
		return nil
	}
}

func TestCheckServerVersions(t *testing.T) {
	t.Parallel()
	for info, want := range map[string]luatomic.Verdict{
		"redis_version:6.2.14":                          luatomic.CheckFailed,
		"redis_version:5.0.7":                           luatomic.CheckFailed,
		"redis_version:7.0.15":                          luatomic.CheckPassed,
		"redis_version:8.2.1":                           luatomic.CheckPassed,
		"redis_version:7.2.4\r\nvalkey_version:8.1.1":   luatomic.CheckPassed,
		"redis_version:unstable":                        luatomic.CheckUnknown,
		"# Server\r\n":                                  luatomic.CheckUnknown,
		"redis_version:10.0.0\r\nredis_mode:standalone": luatomic.CheckPassed,
	} {
		require.Equal(t, want, inspected(t, answers(t, info, 0))["version"].Verdict, info)
	}
	c := inspected(t, answers(t, "redis_version:7.2.4\r\nvalkey_version:9.0.0", 0))["version"]
	require.Equal(t, "Valkey 9.0.0", c.Detail)
}

func TestCheckServerFailedWrites(t *testing.T) {
	t.Parallel()
	for info, detail := range map[string]string{
		"aof_enabled:1\r\naof_last_write_status:err":  "the last write to the append-only file failed",
		"aof_enabled:0\r\nrdb_last_bgsave_status:err": "the last snapshot failed",
		// Each write is refused then, whatever the append-only file is.
		"aof_enabled:1\r\naof_last_write_status:ok\r\nrdb_last_bgsave_status:err": "the last snapshot failed",
	} {
		c := inspected(t, answers(t, info+"\r\nredis_version:7.0.0", 0))["persistence"]
		require.Equal(t, luatomic.CheckFailed, c.Verdict, info)
		require.Equal(t, detail, c.Detail)
	}
}

// A snapshot that was asked for by hand and failed does no harm beside an append-only file.
func TestCheckServerFailedSnapshotByHand(t *testing.T) {
	t.Parallel()
	client := luatomictest.StartServer(t, "--appendonly", "yes").Client()
	lab.FailSnapshot(t, client)
	require.Equal(t, luatomic.CheckPassed, inspected(t, client)["persistence"].Verdict)
}

func TestCheckServerClock(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[time.Duration]luatomic.Verdict{
		0: luatomic.CheckPassed, time.Second: luatomic.CheckPassed, -time.Second: luatomic.CheckPassed,
		time.Minute: luatomic.CheckFailed, -time.Minute: luatomic.CheckFailed,
	} {
		c := inspected(t, answers(t, "redis_version:7.0.0", ahead))["clock"]
		require.Equal(t, want, c.Verdict, c.Detail)
		if ahead != 0 {
			require.Equal(t, ahead < 0, strings.Contains(c.Detail, "behind"), c.Detail)
		}
	}
}

// The embedded server reports almost no INFO.
func TestCheckServerEmbedded(t *testing.T) {
	t.Parallel()
	require.Equal(t, luatomic.CheckUnknown, inspected(t, luatomictest.Embedded(t))["eviction"].Verdict)
}

func TestCheckServerThatIsAway(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	client := server.Client(prompt)
	server.Kill()
	_, err := luatomic.CheckServer(t.Context(), client)
	require.ErrorContains(t, err, "luatomic: check the server at "+server.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = luatomic.CheckServer(ctx, client)
	require.ErrorIs(t, err, context.Canceled)
}

// A server that refuses the client itself is not one that keeps its settings to itself: no warning would look as if all
// were well.
func TestCheckServerThatRefusesTheClient(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes", "--requirepass", "pw", "--busy-reply-threshold", "50")
	refused := func(code, password string, db int) {
		t.Helper()
		client := server.Client(prompt, func(o *redis.Options) {
			o.Password, o.DB, o.MaxRetries = password, db, -1
		})
		checks, err := luatomic.CheckServer(t.Context(), client)
		require.ErrorContains(t, err, "luatomic: check the server at "+server.Addr()+": "+code)
		require.Empty(t, checks)
	}
	refused("NOAUTH", "", 0)
	refused("WRONGPASS", "other", 0)
	refused("ERR DB index is out of range", "pw", 99)

	admin := server.Client(func(o *redis.Options) { o.Password, o.MaxRetries = "pw", -1 })
	ended := make(chan error, 1)
	go func() { ended <- admin.Eval(context.WithoutCancel(t.Context()), "while true do end", nil).Err() }()
	luatomictest.Eventually(t, 20*time.Second, "the server is busy", func() bool {
		return redis.HasErrorPrefix(admin.Ping(t.Context()).Err(), "BUSY")
	})
	refused("BUSY", "pw", 0)
	require.NoError(t, admin.ScriptKill(t.Context()).Err())
	require.Error(t, <-ended)
}

// A server that cannot save its data refuses PING, and is checked.
func TestCheckServerThatCannotSave(t *testing.T) {
	t.Parallel()
	client := luatomictest.StartServer(t, "--save", "3600 1").Client()
	lab.FailSnapshot(t, client)
	require.Equal(t, "the last snapshot failed", inspected(t, client)["persistence"].Detail)
}

// A server that hangs is named, and hides no finding of another one.
func TestCheckServerBesideOneThatHangs(t *testing.T) {
	t.Parallel()
	lab.EachHangs(t, func(*redis.Ring) {}, func(ring *redis.Ring, live string) {
		checks, err := luatomic.CheckServer(t.Context(), ring)
		require.ErrorContains(t, err, "check the server at")
		require.NotContains(t, err.Error(), live)
		require.NotEmpty(t, checks)
		for _, c := range checks {
			require.Equal(t, live, c.Node)
		}
	})
}
