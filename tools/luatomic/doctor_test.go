package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/compat/sidekiq"
	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

// checks are the lines of doctor by name.
func (c *cli) checks() map[string]map[string]any {
	c.t.Helper()
	all := make(map[string]map[string]any)
	for _, o := range c.objects() {
		all[o["check"].(string)] = o
	}
	require.Len(c.t, all, 19, c.stdout.String())
	return all
}

// failed are the names of the checks that did not pass, with their details.
func (c *cli) failed() map[string]string {
	c.t.Helper()
	all := make(map[string]string)
	for name, o := range c.checks() {
		if o["ok"] == false {
			require.NotEmpty(c.t, o["cure"], name)
			all[name] = o["detail"].(string)
		}
	}
	return all
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes")
	e := &env{t: t, url: server.URL(), prefix: "p:"}
	c := e.run("doctor").exits(exitDone)
	for name, o := range c.checks() {
		holds(t, o, map[string]any{"ok": true, "cure": nil})
		require.NotEmpty(t, o["detail"], name)
	}
	require.Equal(t, server.Addr(), c.checks()["eviction"]["node"])
	require.Empty(t, c.stderr.String())
	leavesNothing(t, server, "p:")

	require.NoError(t, server.Client().ConfigSet(t.Context(), "maxmemory-policy", "volatile-lru").Err())
	c = e.run("doctor").exits(exitFailed)
	require.Len(t, c.failed(), 1)
	require.Contains(t, c.failed()["eviction"], "volatile-lru deletes locks")
	require.Equal(t, "luatomic: checks failed: 1; the line of each has its cure\n", c.stderr.String())
}

// leavesNothing checks that what a doctor has left expires within minutes, and names no queue to others.
func leavesNothing(t *testing.T, server *luatomictest.Server, prefix string) {
	t.Helper()
	names, err := server.Client().Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range names {
		require.True(t, strings.HasPrefix(key, prefix), key)
		left, err := server.Client().PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		if left == -2 {
			continue // it has expired meanwhile
		}
		require.Positive(t, left, "%s expires", key)
		require.Less(t, left, 15*time.Minute, key)
	}
	require.Empty(t,
		(&env{t: t, url: server.URL(), prefix: prefix}).run("queues", "ls").exits(exitDone).stdout.String())
}

// A user that may push and not take leaves no job, nor does one that stops in the middle.
func TestDoctorLeavesNoJob(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"producer", "consumer", "lock", "page"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			server := luatomictest.StartServer(t)
			asApp(t, server, nil, "--role", role).run("doctor").exits(exitFailed)
			leavesNothing(t, server, "my app:")
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		server := luatomictest.StartServer(t)
		proxy := luatomictest.NewLossyProxy(t, server.URL())
		proxy.Drop(1000, lab.Sent(&queuescript.TakeScript))
		c := (&env{t: t, url: proxy.URL(), prefix: "p:"}).start("doctor")
		luatomictest.Eventually(t, within, "it takes", func() bool {
			return proxy.Executed(lab.Sent(&queuescript.TakeScript)) > 0
		})
		c.signal(os.Interrupt)
		c.exits(exitInterrupted)
		leavesNothing(t, server, "p:")
	})
	t.Run("may not delete", func(t *testing.T) {
		t.Parallel()
		server := luatomictest.StartServer(t)
		c := asApp(t, server, []string{"-del"}, "--role", "producer").run("doctor").exits(exitFailed)
		require.Contains(t, c.failed()["queue"], "cannot be deleted: NOPERM")
		require.Contains(t, c.failed()["queue"], "delete the keys my app:{doctor-")
	})
}

func TestDoctorOnACluster(t *testing.T) {
	t.Parallel()
	cluster := luatomictest.StartCluster(t)
	for _, node := range cluster.Nodes() {
		require.NoError(t, node.Client().ConfigSet(t.Context(), "appendonly", "yes").Err())
	}
	c := (&env{t: t, url: "redis://" + cluster.Addrs()[0]}).run("doctor").exits(exitDone)
	require.Len(t, c.objects(), 3*9+10)
}

func TestDoctorOfAReplica(t *testing.T) {
	t.Parallel()
	host, port, err := net.SplitHostPort(luatomictest.StartServer(t).Addr())
	require.NoError(t, err)
	replica := luatomictest.StartServer(t, "--appendonly", "yes", "--replicaof", host+" "+port)
	luatomictest.Eventually(t, within, "the replica has loaded its data", func() bool {
		info, err := replica.Client().Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	c := (&env{t: t, url: replica.URL()}).run("doctor").exits(exitFailed)
	require.Contains(t, c.failed(), "rpc")
	require.NotContains(t, c.failed()["queue"], "may stay", "no job was pushed")
	for _, name := range []string{"replication", "lock", "queue"} {
		require.Contains(t, c.failed(), name)
		require.Equal(t, "name the master", c.checks()[name]["cure"], "%v", c.checks()[name])
	}
}

func TestDoctorFullServer(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes", "--maxmemory", "1")
	c := (&env{t: t, url: server.URL()}).run("doctor").exits(exitFailed)
	for _, check := range []string{"lock", "queue", "rpc"} {
		require.Contains(t, c.failed()[check], "OOM", check)
		require.Contains(t, c.checks()[check]["cure"], "maxmemory", check)
	}
}

// asApp makes the user as acl says, and returns an environment of it.
func asApp(t *testing.T, server *luatomictest.Server, less []string, flags ...string) *env {
	t.Helper()
	o := (&env{t: t, prefix: "my app:"}).run(append([]string{"acl"}, flags...)...).exits(exitDone).object()
	args := []any{"ACL", "SETUSER", "app", "reset", "on", ">pw"}
	args = append(args, o["rules"].([]any)...)
	for _, r := range less {
		args = append(args, r)
	}
	require.NoError(t, server.Client().Do(t.Context(), args...).Err())
	return &env{t: t, url: strings.Replace(server.URL(), "redis://", "redis://app:pw@", 1), prefix: "my app:"}
}

func TestACL(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes")
	e := asApp(t, server, nil)
	holds(t, e.with(`{"body":1}`).run("push", "q").exits(exitDone).object(), map[string]any{"pushed": 1})
	holds(t, e.run("consume", "q", "--drain", "--", "true").exits(exitDone).object(), map[string]any{"acked": 1})
	lease, err := lock.New(server.Client(), &lock.Options{Prefix: e.prefix, TTL: time.Minute}).Try(t.Context(), "x")
	require.NoError(t, err)
	c := e.start("lock", "x", "--wait", "1h", "--", "echo", "ran")
	luatomictest.Eventually(t, within, "it waits", func() bool {
		return e.run("locks", "show", "x").exits(exitDone).object()["waiting"].(float64) == 1
	})
	require.NoError(t, lease.Release(t.Context()))
	require.Equal(t, "ran\n", c.exits(exitDone).stdout.String())
	e.run("locks", "steal", "x", "--ttl", "1h").exits(exitDone)
	e.run("locks", "release", "x").exits(exitDone)
	failed := e.run("doctor").exits(exitFailed).failed()
	require.Len(t, failed, 1)
	require.Contains(t, failed["default user"], "RESET")
	searches := [][]string{{"locks", "ls"}, {"locks", "ls", "--kind", "rw"}, {"queue", "audit", "q"}}
	for _, args := range searches {
		said := e.run(args...).exits(exitFailed).stderr.String()
		require.Contains(t, said, "luatomic acl --audit", args)
		require.NotContains(t, said, "check --prefix", args)
	}
	audit := asApp(t, server, nil, "--audit")
	for _, args := range searches {
		audit.run(args...).exits(exitDone)
	}

	other := *e
	other.prefix = "other:"
	c = other.run("lock", "x", "--", "true").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "NOPERM")
}

// A user of one role may not do what the others do: the cure says that this is no fault, and the detail names the call.
func TestDoctorOfARole(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes")
	checks := asApp(t, server, nil, "--role", "producer").run("doctor").exits(exitFailed).checks()
	for _, check := range []string{"channels", "lock", "queue"} {
		require.Equal(t, false, checks[check]["ok"], check)
		require.Contains(t, checks[check]["cure"], "a user of one --role fails the checks of what other roles do",
			check)
	}
	require.Contains(t, checks["lock"]["detail"], "lock_try")
	require.Contains(t, checks["queue"]["detail"], "queue_take")
}

// One right less, and doctor says which of its checks fail and what to do.
func TestDoctorFindsMissingRights(t *testing.T) {
	t.Parallel()
	for rule, check := range map[string]string{
		"-evalsha": "lock", "-set": "lock", "-subscribe": "channels", "-publish": "channels", "-rpush": "queue",
		"resetchannels": "channels", "-time": "lock",
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			server := luatomictest.StartServer(t, "--appendonly", "yes")
			c := asApp(t, server, []string{rule}).run("doctor").exits(exitFailed)
			require.Contains(t, c.failed(), check)
			require.Contains(t, c.checks()[check]["cure"], "luatomic acl", "%v", c.checks()[check])
		})
	}
}

func TestACLCommand(t *testing.T) {
	t.Parallel()
	e := &env{t: t, prefix: "my app:"}
	o := e.run("acl", "--user", "worker", "--cluster", "--replicas").exits(exitDone).object()
	require.Contains(t, o["command"], `ACL SETUSER worker reset on >PASSWORD ~my?app:{* `)
	for _, rule := range []string{"+wait", "+cluster|slots", "+script|load"} {
		require.Contains(t, o["command"], " "+rule)
		require.Contains(t, o["rules"], rule)
	}
}

// A password never stands in the command, and its digest logs in; what the user had before is gone.
func TestACLWithAPasswordFile(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t, "--appendonly", "yes")
	admin := server.Client()
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">old", "~*", "+@all").Err())
	file := filepath.Join(t.TempDir(), "pw")
	require.NoError(t, os.WriteFile(file, []byte("a&b/c PASSWORD\n"), 0o600))
	e := &env{t: t, prefix: "app:"}
	command := e.run("acl", "--password-file", file, "--role", "producer,consumer").exits(exitDone).
		object()["command"].(string)
	require.NotContains(t, command, "PASSWORD")
	var args []any
	for _, word := range strings.Fields(command) {
		args = append(args, word)
	}
	require.NoError(t, admin.Do(t.Context(), args...).Err())
	as := func(password string) *redis.Client {
		return server.Client(func(o *redis.Options) { o.Username, o.Password = "app", password })
	}
	require.ErrorContains(t, as("old").Ping(t.Context()).Err(), "WRONGPASS")
	app := as("a&b/c PASSWORD")
	require.NoError(t, app.Ping(t.Context()).Err())
	require.ErrorContains(t, app.Get(t.Context(), "app:lock:{x}").Err(), "NOPERM")

	// With the default user closed, doctor finds nothing more to say of it.
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "default", "off").Err())
	u := url.UserPassword("app", "a&b/c PASSWORD").String()
	c := (&env{t: t, url: strings.Replace(server.URL(), "redis://", "redis://"+u+"@", 1), prefix: "app:"}).run("doctor")
	require.Equal(t, true, c.checks()["default user"]["ok"])
}

// A connection that fails for another reason than a refusal shows nothing of the default user.
func TestDoctorWithoutAnAnswerToADefaultUser(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	server.Kill()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "pw"})
	defer func() { _ = client.Close() }()
	r := examineDefault(t.Context(), client)
	require.Nil(t, r.OK, r.Detail)
	require.Contains(t, r.Detail, "not known: ")
}

func TestACLRefusesWhatIsNoRole(t *testing.T) {
	t.Parallel()
	e := &env{t: t}
	for says, args := range map[string][]string{
		"the roles are producer": {"--role", "admin"}, "reads only": {"--role", "page,lock"},
		"leave it out with --dialect":                        {"--role", "lock", "--dialect", "sidekiq7"},
		"--cluster, --replicas: not in the dialect sidekiq7": {"--cluster", "--replicas", "--dialect", "sidekiq7"},
		"--audit: not in the dialect plain":                  {"--audit", "--dialect", "plain"},
	} {
		require.Contains(t, e.run(append([]string{"acl"}, args...)...).exits(exitUsage).stderr.String(), says)
	}
	c := e.run("acl", "--password-file", filepath.Join(t.TempDir(), "none")).exits(exitFailed)
	require.Contains(t, c.stderr.String(), "the password cannot be read")
}

func TestLoad(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	app := asApp(t, server, nil, "--preloaded")
	c := app.run("lock", "x", "--", "true").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "run luatomic load as a user that may")
	require.NotContains(t, c.stderr.String(), "luatomic acl")
	checks := app.run("doctor").exits(exitFailed).checks()
	require.Contains(t, checks["scripts"]["detail"], "SCRIPT LOAD is refused, and the scripts are not loaded")
	for _, check := range []string{"scripts", "lock", "queue", "rpc"} {
		require.Contains(t, checks[check]["cure"], "run luatomic load", check)
	}
	c = app.run("load").exits(exitFailed)
	require.Contains(t, c.stderr.String(), "name a user that may run SCRIPT LOAD")
	require.Equal(t, 1, strings.Count(c.stderr.String(), "\n"))

	admin := &env{t: t, url: server.URL()}
	holds(t, admin.run("load").exits(exitDone).object(), map[string]any{"loaded": countScripts(luatomic.Scripts())})
	require.Greater(t, countScripts(luatomic.Scripts()), 30)
	app.run("lock", "x", "--", "true").exits(exitDone)
	for dialect, scripts := range map[string][]*lua.Script{
		"actionhero": actionhero.Scripts(), "redisinaction": redisinaction.Scripts(), "sidekiq8": sidekiq.Scripts(),
		"plain": plainlock.Scripts(),
	} {
		require.NotContains(t, server.Client().ScriptExists(t.Context(), hashes(scripts)...).Val(), true,
			"not among the others")
		holds(t, admin.run("load", "--dialect", dialect).exits(exitDone).object(),
			map[string]any{"loaded": len(scripts)})
		there := server.Client().ScriptExists(t.Context(), hashes(scripts)...).Val()
		require.Len(t, there, len(scripts))
		require.NotContains(t, there, false, dialect)
	}
	scripts := app.run("doctor").checks()["scripts"]
	holds(t, scripts,
		map[string]any{"ok": true, "detail": "SCRIPT LOAD is refused; the scripts are loaded already, or run by EVAL"})
}

// Preloading the scripts of a dialect misses none.
func TestScriptsOfTheDialectsAreAll(t *testing.T) {
	t.Parallel()
	for dialect, scripts := range map[string][]*lua.Script{
		"actionhero": actionhero.Scripts(), "redisinaction": redisinaction.Scripts(), "sidekiq": sidekiq.Scripts(),
	} {
		files, err := filepath.Glob("../../compat/" + dialect + "/internal/script/*.lua")
		require.NoError(t, err)
		var want, got []string
		for _, f := range files {
			want = append(want, strings.TrimSuffix(filepath.Base(f), ".lua"))
		}
		for _, s := range scripts {
			got = append(got, s.Name)
		}
		require.NotEmpty(t, want)
		require.ElementsMatch(t, want, got)
	}
}

func hashes(scripts []*lua.Script) (all []string) {
	for _, s := range scripts {
		all = append(all, s.SHA)
	}
	return all
}

// A server that stops in the middle does not hold doctor up, and Ctrl-C ends it.
func TestDoctorInterrupted(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	proxy := luatomictest.NewLossyProxy(t, server.URL())
	// Every script gets no answer: it is in the checks that use the package.
	proxy.Drop(1000, luatomictest.Command("EVALSHA"))
	c := (&env{t: t, url: proxy.URL()}).start("doctor")
	luatomictest.Eventually(t, within, "it tries a lock", func() bool {
		return strings.Contains(c.stdout.String(), `"channels"`)
	})
	c.signal(os.Interrupt)
	c.exits(exitInterrupted)
}

// A server that fills up is a warning first, and a failure before it refuses writes.
func TestDoctorWarnsOfAServerThatFillsUp(t *testing.T) {
	t.Parallel()
	for verdict, ok := range map[luatomic.Verdict]bool{luatomic.CheckWarned: true, luatomic.CheckFailed: false} {
		r := settingResult(luatomic.ServerCheck{Check: "memory", Verdict: verdict, Cure: "raise it"})
		require.Equal(t, ok, *r.OK, verdict)
		require.Equal(t, "raise it", *r.Cure, verdict)
	}
}

// What queues know of ended jobs is shown, and a warning where it takes much of the memory.
func TestDoctorShowsTheIDsOfEndedJobs(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	e, c := &env{t: t, url: server.URL(), prefix: "p:"}, server.Client()
	ids := func() map[string]any {
		r := e.run("doctor")
		return r.checks()["ids"]
	}
	require.Equal(t, "0 ids of ended jobs known in 0 queues, about 0.0 MB in Redis", ids()["detail"])
	for _, name := range []string{"few", "many"} {
		q := lab.Must(queue.New(c, name, &queue.Options{Prefix: "p:"}))
		lab.Push(t, q, queue.Job{ID: "a"})
		require.NoError(t, lab.TakeOne(t, q).Ack(t.Context()))
	}
	require.Equal(t, "2 ids of ended jobs known in 2 queues, about 0.0 MB in Redis", ids()["detail"])
	require.Nil(t, ids()["cure"])

	marks := make([]redis.Z, 15_000)
	for i := range marks {
		marks[i] = redis.Z{Score: lab.Future, Member: fmt.Sprint(i)}
	}
	require.NoError(t, c.ZAdd(t.Context(), "p:{many}:f", marks...).Err())
	require.Nil(t, ids()["cure"], "there is no maxmemory")
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "20mb").Err())
	require.Equal(t, true, ids()["ok"])
	require.Equal(t, "15002 ids of ended jobs known in 2 queues, about 2.1 MB in Redis, 10 % of maxmemory",
		ids()["detail"])
	require.Contains(t, ids()["cure"], `most are of "many": set a shorter Options.Receipt`)
}
