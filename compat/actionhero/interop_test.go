//go:build interop

package actionhero_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/internal/testkit/subprocess"
	"github.com/luatomic/luatomic/luatomictest"
)

const (
	channel = "actionhero-interop"
	token   = "tok-interop"
)

// answer is a line from the agent in testdata/node/agent.js.
type answer struct {
	Up       string
	Error    string
	Response json.RawMessage
	OK       any
	Item     json.RawMessage
	Received []json.RawMessage
	Overlaps int
	Wrong    int
}

// request is a line for the agent.
type request map[string]any

// node is a real ActionHero process.
type node struct {
	*subprocess.Program
	t testing.TB
}

// ask sends a request; an error in the answer fails the test.
func (n *node) ask(r request) answer {
	n.t.Helper()
	a := n.try(r)
	require.Empty(n.t, a.Error, "%v", r)
	return a
}

func (n *node) try(r request) answer {
	n.t.Helper()
	var a answer
	n.Ask(r, &a)
	return a
}

// alive checks that the process still runs and answers.
func (n *node) alive(t *testing.T) {
	t.Helper()
	require.True(t, n.Running(), n.Stderr())
	n.ask(request{"op": "received"})
}

// installed returns a folder with that version in its node_modules. It is created once for each content of testdata
// and kept in the user's cache folder.
func installed(t *testing.T, version string) string {
	t.Helper()
	subprocess.Find(t, "apt-get install nodejs", []string{"node", "--version"})
	subprocess.Find(t, "apt-get install npm", []string{"npm", "--version"})
	hash := sha256.New()
	files := []string{"package.json", "package-lock.json"}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join("testdata", "node", version, name))
		require.NoError(t, err)
		hash.Write(text)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "luatomic-interop")
	require.NoError(t, os.MkdirAll(cache, 0o755))
	dir := filepath.Join(cache, "actionhero-"+version+"-"+hex.EncodeToString(hash.Sum(nil)[:6]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	// The rename makes it complete or absent: another run may install at the same time.
	fresh, err := os.MkdirTemp(cache, "fresh-")
	require.NoError(t, err)
	defer os.RemoveAll(fresh)
	copyFiles(t, version, fresh, files...)
	subprocess.Find(t, "npm has to reach its registry", []string{
		"npm", "ci", "--prefix", fresh, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error",
	})
	if err := os.Rename(fresh, dir); err != nil {
		require.DirExists(t, dir)
	}
	return dir
}

func copyFiles(t *testing.T, version, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		copyFile(t, filepath.Join(version, name), filepath.Join(dir, name))
	}
}

func copyFile(t *testing.T, name, to string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "node", name))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	require.NoError(t, os.WriteFile(to, text, 0o644))
}

// release is one version of ActionHero.
type release struct {
	version string // folder below testdata/node
	boot    string
	config  string // path from which the process reads it
	path    string
	era     actionhero.Era
	layout  actionhero.Layout
	relock  actionhero.Relock
}

var releases = map[string]release{
	"12.5.0": {"v12", "callback.js", "config14.js", "config",
		actionhero.Callback, actionhero.Stamped, actionhero.Refresh},
	"14.0.12": {"v14", "callback.js", "config14.js", "config",
		actionhero.Callback, actionhero.Stamped, actionhero.Refresh},
	"18.1.4": {"v18", "promise18.js", "config14.js", "config", actionhero.Promise18, actionhero.Stamped,
		actionhero.Deny},
	"22.1.1": {"v22", "promise.js", "config22.js", "dist/config",
		actionhero.Promise, actionhero.Stamped, actionhero.Deny},
	"29.3.5": {"v29", "promise.js", "config29.js", "dist/config", actionhero.Promise, actionhero.Plain,
		actionhero.Deny},
}

// startNode starts a process of that version with that id.
func startNode(t *testing.T, server *luatomictest.Server, r release, id string) *node {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(installed(t, r.version), "node_modules"),
		filepath.Join(dir, "node_modules")))
	copyFiles(t, r.version, dir, "package.json")
	copyFile(t, r.boot, filepath.Join(dir, "boot.js"))
	copyFile(t, r.config, filepath.Join(dir, r.path, "interop.js"))
	here, err := filepath.Abs(filepath.Join("testdata", "node"))
	require.NoError(t, err)
	host, port := splitAddr(t, server.Addr())
	cmd := exec.Command("node", "boot.js")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "AGENT="+here+"/agent.js", "METHODS="+here+"/methods.js", "VERSION="+r.version,
		"REDIS_HOST="+host, "REDIS_PORT="+port, "REDIS_DB=0", "FAKEREDIS=false", "NODE_ENV=development",
		"ACTIONHERO_TYPESCRIPT_MODE=false", "ACTIONHERO_TITLE="+id, "TOKEN="+token, "CHANNEL="+channel,
		"RPC_TIMEOUT=8000")
	n := &node{subprocess.Start(t, cmd), t}
	var up answer
	require.NoError(t, json.Unmarshal(n.Line(2*time.Minute), &up))
	require.Equal(t, id, up.Up)
	return n
}

// cluster is two processes of one version, and a Go node beside them.
type cluster struct {
	release
	server *luatomictest.Server
	client *redis.Client
	a, b   *node
	goNode *actionhero.Node
}

// methods of boot.js that end no process.
var nodeMethods = map[string]int{
	"api.t.object": 0, "api.t.nothing": 0, "api.t.echo": 1,
	"api.t.first": 1, "api.t.fail": 1, "api.t.failValue": 1, "api.t.none": 0,
	"api.t.several": 0, "api.t.three": 0, "api.t.sum": 2, "api.t.mute": 0,
}

func startCluster(t *testing.T, r release) *cluster {
	t.Helper()
	c := &cluster{release: r, server: luatomictest.StartServer(t)}
	c.client = c.server.Client()
	c.a = startNode(t, c.server, r, "node-A")
	c.b = startNode(t, c.server, r, "node-B")
	c.goNode = c.run(t, &actionhero.Options{ServerID: "node-Go", Timeout: 30 * time.Second, Hold: time.Second})
	return c
}

// run starts another Go node on the cluster.
func (c *cluster) run(t *testing.T, o *actionhero.Options) *actionhero.Node {
	t.Helper()
	o.Channel, o.Era = channel, c.era
	if o.Methods == nil {
		o.Methods = nodeMethods
	}
	if o.ServerToken == "" {
		o.ServerToken = token
	}
	n := actionhero.NewNode(c.client, o)
	runNode(t, n)
	return n
}

// call calls a method of the processes from Go.
func (c *cluster) call(t *testing.T, method string, args ...any) *actionhero.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := c.goNode.DoCluster(ctx, method, args, "")
	require.NoError(t, err, method)
	return r
}

// Both processes survive all tests: the last one checks.
func (c *cluster) test(t *testing.T) {
	steps := []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"GoCallsNode", goCallsNode}, {"GoGathers", goGathers}, {"NodeCallsGo", nodeCallsGo},
		{"Connections", connections},
		{"Timeouts", timeouts}, {"Token", tokens}, {"Messages", messages}, {"ManyCalls", manyCalls},
		{"Locks", locks}, {"LockWindow", lockWindow}, {"Contention", contention}, {"Items", items},
		{"LockedItems", lockedItems}, {"Recipe", recipe},
	}
	for _, s := range steps {
		if !t.Run(s.name, func(t *testing.T) {
			c.a.t, c.b.t = t, t
			s.run(t, c)
			c.a.alive(t)
			c.b.alive(t)
		}) {
			return
		}
	}
}

func TestInterop(t *testing.T) {
	t.Parallel()
	for version, r := range releases {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			startCluster(t, r).test(t)
		})
	}
}

// A call carries both ids: each process answers with the id of its own era, in the form of that era.
func TestInteropMixedVersions(t *testing.T) {
	t.Parallel()
	c := &cluster{release: releases["14.0.12"], server: luatomictest.StartServer(t)}
	c.client = c.server.Client()
	c.a = startNode(t, c.server, releases["14.0.12"], "old")
	c.b = startNode(t, c.server, releases["29.3.5"], "new")
	c.goNode = c.run(t, &actionhero.Options{ServerID: "node-Go", Timeout: 30 * time.Second})
	all, err := c.goNode.Gather(t.Context(), "api.t.sum", []any{20, 22}, "", 30*time.Second)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "[42,null]", string(all["old"].Raw))
	require.Equal(t, "42", string(all["new"].Raw))
	for _, r := range all {
		require.Equal(t, 42, decoded[int](t, r))
	}

	// And a call of either process gets a response in the form of its era.
	require.NoError(t, c.goNode.Own("go-conn"))
	require.NoError(t, c.goNode.Handle("api.go.hi", func(context.Context, *actionhero.Request) (any, error) {
		return "hi", nil
	}))
	call := request{"op": "call", "method": "api.go.hi", "args": []any{}, "connection": "go-conn"}
	require.Equal(t, `["hi"]`, string(c.a.ask(call).Response))
	require.Equal(t, `"hi"`, string(c.b.ask(call).Response))

	// Both read the stamped layout.
	require.NoError(t, c.cache("go").Save(t.Context(), "mixed", "v", time.Minute))
	for _, n := range []*node{c.a, c.b} {
		require.Contains(t, string(n.ask(request{"op": "load", "key": "mixed"}).Item), `"value":"v"`)
		n.alive(t)
	}
}
