//go:build interop

package redisinaction_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/internal/testkit/subprocess"
	"github.com/luatomic/luatomic/luatomictest"
)

// python starts the listing's code on a server of the test's own.
func python(t *testing.T) (*subprocess.Program, *redisinaction.Client, *redis.Client) {
	t.Helper()
	interpreter := findPython(t)
	server := luatomictest.StartServer(t)
	r := server.Client()
	return startPython(t, interpreter, server), redisinaction.New(r, nil), r
}

func findPython(t *testing.T) string {
	t.Helper()
	// Debian's module belongs to Debian's interpreter; another can be first on PATH.
	return subprocess.Find(t, "apt-get install python3-redis",
		[]string{"/usr/bin/python3", "-c", "import redis"}, []string{"python3", "-c", "import redis"})
}

func startPython(t *testing.T, interpreter string, server *luatomictest.Server) *subprocess.Program {
	t.Helper()
	_, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	return subprocess.Start(t, exec.Command(interpreter, "-B", filepath.Join("testdata", "python", "agent.py"), port))
}

// pollUntil runs a Go poller until the function returns, and returns how many it moved.
func pollUntil(t *testing.T, c *redisinaction.Client, f func()) (moved int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		p := c.NewPoller(&redisinaction.PollerOptions{
			OnPoll:  func(p redisinaction.Polled) { moved += p.Moved },
			OnError: func(err error) { t.Error(err) },
		})
		_ = p.Run(ctx)
	})
	defer func() {
		cancel()
		wg.Wait()
	}()
	f()
	return
}

// values are arguments in which the two languages could differ.
var values = []any{
	nil, true, 0, -1, int64(9223372036854775807), 0.1, 1e-7, 1.5e300, "", "é", "日本 😀", "a\"b\\c/d",
	"<&>\u2028\x7f\b\f\n\r\t\x01",
	[]any{}, map[string]any{}, map[string]any{"b": []any{1, "é"}, "a": map[string]any{"c": nil}},
}

// Python schedules, Go polls and works.
func TestInteropPythonExecutesGoPolls(t *testing.T) {
	p, c, r := python(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var calls []any
	for i, v := range values {
		calls = append(calls, []any{fmt.Sprint("näme ", i), []any{v, i}, float64(i) / 100})
	}
	var ids []string
	p.Ask([]any{"execute_later", "q", calls}, &ids)
	require.Len(t, ids, len(values))
	w, err := c.NewWorker("w", []string{"q"}, nil)
	require.NoError(t, err)
	pollUntil(t, c, func() {
		for i, v := range values {
			item, err := w.Take(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{ids[i], "q", fmt.Sprint("näme ", i)}, []string{item.ID, item.Queue, item.Name})
			want, err := json.Marshal([]any{v, i})
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(item.Args))
			require.NoError(t, w.Done(ctx, item))
		}
	})
	require.Zero(t, r.DBSize(ctx).Val(), "no key is left")

	p.Ask([]any{"execute_later", "q", []any{[]any{"infinite", []any{1}, 0}}}, &ids)
	item, err := w.Take(ctx)
	require.NoError(t, err)
	require.Equal(t, ids[0], item.ID)
}

// Go schedules, Python polls and works. The bytes are those that Python writes.
func TestInteropGoExecutesPythonPolls(t *testing.T) {
	p, c, r := python(t)
	ctx := t.Context()
	var tasks []redisinaction.Task
	for i, v := range values {
		tasks = append(tasks, redisinaction.Task{Name: fmt.Sprint("näme ", i), Args: []any{v, i},
			Delay: time.Duration(i) * 10 * time.Millisecond})
	}
	_, err := c.ExecuteAll(ctx, "q", tasks...)
	require.NoError(t, err)
	ours := append(r.LRange(ctx, "queue:q", 0, -1).Val(), r.ZRange(ctx, "delayed:", 0, -1).Val()...)
	require.Len(t, ours, len(tasks))
	var theirs []string
	p.Ask([]any{"rewrite", ours}, &theirs)
	require.Equal(t, theirs, ours)

	var nothing any
	p.Ask([]any{"poll"}, &nothing)
	var called [][]json.RawMessage
	p.Ask([]any{"work", []string{"q"}, len(tasks), 20}, &called)
	require.Len(t, called, len(tasks))
	for i, call := range called {
		want, err := json.Marshal(tasks[i].Args)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(call[1]))
		var name string
		require.NoError(t, json.Unmarshal(call[0], &name))
		require.Equal(t, tasks[i].Name, name)
	}
}

// For random JSON, Go and Python write the same bytes.
func TestInteropBytesAreThoseOfPython(t *testing.T) {
	p, c, r := python(t)
	ctx := t.Context()
	rnd := rand.New(rand.NewPCG(1, 2))
	var ours []string
	for range 20 {
		tasks := make([]redisinaction.Task, 100)
		for i := range tasks {
			tasks[i] = redisinaction.Task{Name: "n",
				Args: []any{randomValue(rnd, 4), json.RawMessage(randomNumber(rnd))}}
		}
		_, err := c.ExecuteAll(ctx, "q", tasks...)
		require.NoError(t, err)
	}
	ours = r.LRange(ctx, "queue:q", 0, -1).Val()
	require.Len(t, ours, 2000)
	var theirs []string
	p.Ask([]any{"rewrite", ours}, &theirs)
	require.Equal(t, theirs, ours)
}

func randomValue(rnd *rand.Rand, depth int) any {
	switch n := rnd.IntN(9); {
	case n == 0 && depth > 0:
		list := make([]any, rnd.IntN(4))
		for i := range list {
			list[i] = randomValue(rnd, depth-1)
		}
		return list
	case n == 1 && depth > 0:
		object := make(map[string]any)
		for range rnd.IntN(4) {
			object[randomText(rnd)] = randomValue(rnd, depth-1)
		}
		return object
	case n == 2:
		return rnd.NormFloat64()
	case n == 3:
		return rnd.Int64() - rnd.Int64()
	case n == 4:
		return rnd.IntN(2) == 0
	}
	return randomText(rnd)
}

func randomText(rnd *rand.Rand) string {
	text := make([]rune, rnd.IntN(8))
	for i := range text {
		text[i] = rune(rnd.IntN([]int{0x80, 0x800, 0x3000, 0x110000}[rnd.IntN(4)]))
	}
	return string(text)
}

// randomNumber returns a valid JSON number, not always in the form that Python writes.
func randomNumber(rnd *rand.Rand) string {
	switch rnd.IntN(4) {
	case 0:
		return strconv.FormatFloat(rnd.NormFloat64(), 'e', rnd.IntN(20), 64)
	case 1:
		return strconv.FormatFloat(rnd.ExpFloat64()*1e16, 'f', rnd.IntN(4), 64)
	case 2:
		return fmt.Sprintf("%d.%dE%+d", rnd.IntN(10), rnd.IntN(1000), rnd.IntN(600)-300)
	}
	return fmt.Sprintf("%de%d", rnd.IntN(100), rnd.IntN(25))
}

// Pollers in Go and in Python run concurrently over 5000 items, half of them from each side: each item runs once.
func TestInteropBothPollersMoveEachItemOnce(t *testing.T) {
	p, c, r := python(t)
	ctx := t.Context()
	const half = 2500
	var want []string
	calls := make([]any, half)
	for i := range calls {
		calls[i] = []any{fmt.Sprint("python", i), []any{i}, 0.5 + float64(i)*0.001}
	}
	var ids []string
	p.Ask([]any{"execute_later", "q", calls}, &ids)
	want = append(want, ids...)
	for range half / 500 {
		tasks := make([]redisinaction.Task, 500)
		for i := range tasks {
			tasks[i] = redisinaction.Task{Name: "go",
				Delay: 500*time.Millisecond + time.Duration(rand.N(2500))*time.Millisecond}
		}
		out, err := c.ExecuteAll(ctx, "q", tasks...)
		require.NoError(t, err)
		want = append(want, out.IDs...)
	}
	var nothing any
	p.Ask([]any{"poll"}, &nothing)
	p.Ask([]any{"poll"}, &nothing)
	moved := pollUntil(t, c, func() {
		luatomictest.Eventually(t, time.Minute, "all are moved", func() bool {
			return r.LLen(ctx, "queue:q").Val() >= 2*half && r.ZCard(ctx, "delayed:").Val() == 0
		})
	})
	var got []string
	for _, text := range r.LRange(ctx, "queue:q", 0, -1).Val() {
		item, err := redisinaction.ParseItem([]byte(text))
		require.NoError(t, err)
		got = append(got, item.ID)
	}
	t.Logf("Go moved %d, Python %d", moved, 2*half-moved)
	require.Positive(t, moved)
	require.Less(t, moved, 2*half, "both had work")
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(t, want, got)
}

// An item that a dead poller of the book has locked for ever is still moved.
func TestInteropADeadPollersLockStopsNothing(t *testing.T) {
	p, c, _ := python(t)
	ctx := t.Context()
	var ids []string
	p.Ask([]any{"execute_later", "q", []any{[]any{"n", []any{}, 0.001}}}, &ids)
	var held string
	p.Ask([]any{"acquire", ids[0], 1}, &held) // as poll_queue does, before it dies
	p.Kill()
	luatomictest.Eventually(t, 30*time.Second, "it is moved", func() bool {
		out, err := c.PollQueue(ctx)
		require.NoError(t, err)
		return out.Moved == 1
	})
}

// Go and Python contend for one lock: never two hold it, and neither side starves.
func TestInteropLockIsOnes(t *testing.T) {
	p, c, r := python(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const rounds = 300
	require.NoError(t, r.Set(ctx, "inside", 0, 0).Err())
	p.Send([]any{"contend", "l", rounds})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range rounds {
				id, err := c.AcquireLock(ctx, "l", &redisinaction.LockOptions{Wait: -1, TTL: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				if r.Incr(ctx, "inside").Val() != 1 {
					t.Error("two hold the lock")
				}
				r.Incr(ctx, "rounds")
				r.Decr(ctx, "inside")
				if err := c.ReleaseLock(ctx, "l", id); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	require.Equal(t, "0", string(p.Line(2*time.Minute)), "Python never shared the lock")
	wg.Wait()
	require.Equal(t, strconv.Itoa(3*rounds), r.Get(ctx, "rounds").Val())
	require.Zero(t, r.Exists(ctx, "lock:l").Val())
}

// Either side sees the other's lock, and can release it.
func TestInteropLockIsUnderstood(t *testing.T) {
	p, c, r := python(t)
	ctx := t.Context()
	var theirs string
	p.Ask([]any{"acquire", "l", 1}, &theirs)
	_, err := c.AcquireLock(ctx, "l", &redisinaction.LockOptions{Once: true})
	require.ErrorIs(t, err, redisinaction.ErrHeld)
	require.NoError(t, c.ReleaseLock(ctx, "l", theirs), "the identifier is the lock")
	ours, err := c.AcquireLock(ctx, "l", nil)
	require.NoError(t, err)
	var got any
	p.Ask([]any{"acquire", "l", 0.05}, &got)
	require.Equal(t, false, got)
	p.Ask([]any{"release", "l", "another"}, &got)
	require.Equal(t, false, got)
	p.Ask([]any{"release", "l", ours}, &got)
	require.Equal(t, true, got)
	require.Zero(t, r.Exists(ctx, "lock:l").Val())

	p.Ask([]any{"acquire", "l", 1}, &theirs)
	p.Kill() // without Heal the lock is never free again
	_, err = c.AcquireLock(ctx, "l", &redisinaction.LockOptions{Wait: 30 * time.Second, Heal: 50 * time.Millisecond})
	require.NoError(t, err)
}
