//go:build interop

package plainlock_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/internal/testkit/subprocess"
	"github.com/luatomic/luatomic/luatomictest"
)

// library is one whose locks Go shares.
type library struct {
	prefix string // of its keys
	start  func(t *testing.T, addr string) *exec.Cmd
}

var libraries = map[string]library{
	"redsync":   {start: goPeer("redsync")},
	"redislock": {start: goPeer("redislock")},
	"redis-py": {start: func(t *testing.T, addr string) *exec.Cmd {
		// The package of the system is for the Python of the system.
		python := subprocess.Find(t, "apt-get install python3-redis",
			[]string{"/usr/bin/python3", "-c", "import redis"}, []string{"python3", "-c", "import redis"})
		return exec.Command(python, "testdata/python/agent.py", "redis://"+addr)
	}},
	"redlock of Node.js": {start: func(t *testing.T, addr string) *exec.Cmd {
		node := subprocess.Find(t, "apt-get install nodejs", []string{"node", "--version"})
		return exec.Command(node, "testdata/node/agent.js", nodeModules(t), "redis://"+addr)
	}},
	"redlock of Ruby": {start: func(t *testing.T, addr string) *exec.Cmd {
		ruby := subprocess.Find(t, "apt-get install ruby-redis", []string{"ruby", "-e", "require 'redis'"})
		return exec.Command(ruby, "testdata/ruby/agent.rb", "redis://"+addr)
	}},
	"Laravel": {prefix: "laravel_database_laravel_cache:", start: func(t *testing.T, addr string) *exec.Cmd {
		php := subprocess.Find(t, "apt-get install php-cli php-illuminate-cache php-illuminate-redis php-redis",
			[]string{"php", "-r", "require 'Illuminate/Cache/autoload.php'; " +
				"require 'Illuminate/Redis/autoload.php'; new Redis();"})
		host, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		return exec.Command(php, "testdata/php/agent.php", host, port)
	}},
}

// building lets one test build the program, and the others use it.
var building sync.Mutex

// goPeer starts the program of testdata/go, which is a module of its own: no library is a dependency of this one.
func goPeer(library string) func(t *testing.T, addr string) *exec.Cmd {
	return func(t *testing.T, addr string) *exec.Cmd {
		t.Helper()
		building.Lock()
		defer building.Unlock()
		dir := cached(t, "testdata/go", []string{"go.mod", "go.sum", "main.go"}, func(fresh string) {
			subprocess.Find(t, "the Go module proxy has to be reached",
				[]string{"go", "build", "-C", fresh, "-o", "peer", "."})
		})
		return exec.Command(filepath.Join(dir, "peer"), library, addr)
	}
}

// nodeModules returns a folder with the packages of testdata/node.
func nodeModules(t *testing.T) string {
	t.Helper()
	subprocess.Find(t, "apt-get install npm", []string{"npm", "--version"})
	building.Lock()
	defer building.Unlock()
	return cached(t, "testdata/node", []string{"package.json", "package-lock.json"}, func(fresh string) {
		subprocess.Find(t, "npm has to reach its registry", []string{
			"npm", "ci", "--prefix", fresh, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error",
		})
	})
}

// cached returns a folder with those files and what fill adds to them. It is kept in the user's cache folder, under a
// hash of the files.
func cached(t *testing.T, from string, files []string, fill func(fresh string)) string {
	t.Helper()
	hash, texts := sha256.New(), make([][]byte, len(files))
	for i, name := range files {
		text, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		texts[i] = text
		fmt.Fprintf(hash, "%s %d %s", name, len(text), text)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "luatomic-interop")
	dir := filepath.Join(cache, "plainlock-"+filepath.Base(from)+"-"+hex.EncodeToString(hash.Sum(nil)[:6]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	// The rename makes it complete or absent: another run may fill it at the same time.
	require.NoError(t, os.MkdirAll(cache, 0o755))
	fresh, err := os.MkdirTemp(cache, "fresh-")
	require.NoError(t, err)
	defer os.RemoveAll(fresh)
	for i, name := range files {
		require.NoError(t, os.WriteFile(filepath.Join(fresh, name), texts[i], 0o644))
	}
	fill(fresh)
	if err := os.Rename(fresh, dir); err != nil {
		require.DirExists(t, dir)
	}
	return dir
}

type answer struct {
	OK       bool
	Overlaps int
	Error    string
}

// ask sends a question; an error in the answer fails the test. Contention on a loaded machine takes its time.
func ask(t *testing.T, p *subprocess.Program, op string, more map[string]any) (a answer) {
	t.Helper()
	q := map[string]any{"op": op, "key": "k", "count": "entered"}
	maps.Copy(q, more)
	p.Send(q)
	line := p.Line(2 * time.Minute)
	require.NoError(t, json.Unmarshal(line, &a), "%s", line)
	require.Empty(t, a.Error, op)
	return a
}

// scene is a server with a Locker and a program of one library.
type scene struct {
	c      *redis.Client
	l      *plainlock.Locker
	p      *subprocess.Program
	prefix string
}

func withEach(t *testing.T, test func(t *testing.T, s scene)) {
	t.Helper()
	t.Parallel()
	for name, library := range libraries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := luatomictest.StartServer(t)
			c := server.Client()
			l := plainlock.New(c, &plainlock.Options{Prefix: library.prefix, TTL: time.Minute,
				Poll: 10 * time.Millisecond})
			t.Cleanup(func() { _ = l.Close() })
			addr := strings.TrimPrefix(server.URL(), "redis://")
			test(t, scene{c, l, subprocess.Start(t, library.start(t, addr)), library.prefix})
		})
	}
}

// Go and the library exclude each other on one key, and each releases only its own lock.
func TestInteropEachSeesTheOthersLock(t *testing.T) {
	withEach(t, func(t *testing.T, s scene) {
		c, l, p, key := s.c, s.l, s.p, s.prefix+"k"
		ctx, ttl := t.Context(), map[string]any{"ttl": 60_000}
		require.True(t, ask(t, p, "acquire", ttl).OK)
		_, err := l.Try(ctx, "k")
		var held *plainlock.HeldError
		require.ErrorAs(t, err, &held)
		left, ends := held.Remaining.Get()
		require.True(t, ends)
		require.InDelta(t, time.Minute, left, float64(20*time.Second))
		require.True(t, ask(t, p, "release", nil).OK)

		lock, err := l.Try(ctx, "k")
		require.NoError(t, err)
		require.False(t, ask(t, p, "acquire", ttl).OK)
		require.NoError(t, lock.Release(ctx))
		require.True(t, ask(t, p, "acquire", ttl).OK)
		require.NoError(t, c.Set(ctx, key, "go", time.Minute).Err())
		require.False(t, ask(t, p, "release", nil).OK, "it is not its own any more")
		require.Equal(t, "go", c.Get(ctx, key).Val())
		require.Equal(t, []string{key}, c.Keys(ctx, "*").Val(), "and there is no other key")
	})
}

// Under contention one process at most is inside, and all are served.
func TestInteropContention(t *testing.T) {
	const rounds = 60
	withEach(t, func(t *testing.T, s scene) {
		c, l, p := s.c, s.l, s.p
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var ours sync.WaitGroup
		var overlaps atomic.Int64
		for range 2 {
			ours.Go(func() {
				for range rounds {
					err := l.Do(ctx, "k", func(ctx context.Context) error {
						if c.Incr(ctx, "entered:inside").Val() != 1 {
							overlaps.Add(1)
						}
						c.Incr(ctx, "entered")
						return c.Decr(ctx, "entered:inside").Err()
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		theirs := ask(t, p, "sections", map[string]any{"n": rounds})
		ours.Wait()
		require.True(t, theirs.OK)
		require.Zero(t, theirs.Overlaps+int(overlaps.Load()))
		n, err := c.Get(ctx, "entered").Int()
		require.NoError(t, err)
		require.Equal(t, 3*rounds, n)
	})
}

// The lock of a killed program ends with its TTL, on either side.
func TestInteropKills(t *testing.T) {
	withEach(t, func(t *testing.T, s scene) {
		c, l, p := s.c, s.l, s.p
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		short := plainlock.New(c, &plainlock.Options{Prefix: s.prefix, TTL: 400 * time.Millisecond})
		t.Cleanup(func() { _ = short.Close() })
		_, err := short.Try(ctx, "of Go") // no process extends or releases it, as after a death
		require.NoError(t, err)
		luatomictest.Eventually(t, time.Minute, "the library takes it", func() bool {
			return ask(t, p, "acquire", map[string]any{"key": "of Go", "ttl": 60_000}).OK
		})
		require.True(t, ask(t, p, "acquire", map[string]any{"ttl": 5000}).OK)
		p.Kill()
		lock, err := l.Acquire(ctx, "k")
		require.NoError(t, err)
		require.NoError(t, lock.Release(ctx))
	})
}
