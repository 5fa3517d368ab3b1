// Package lab has fixtures that the tests of several packages share: queues, locks, buses, waits, counts of commands,
// processes.
package lab

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
)

// Step runs a function before the n-th command of a name, such as "get2".
type Step struct {
	At map[string]func()

	mu sync.Mutex // a connection for messages sends commands too
	n  map[string]int
}

func (s *Step) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *Step) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *Step) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f := s.next(cmd.Name()); f != nil {
			f()
		}
		return next(ctx, cmd)
	}
}

// next counts a command, and returns what is to be done before it.
func (s *Step) next(command string) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == nil {
		s.n = make(map[string]int)
	}
	s.n[command]++
	return s.At[fmt.Sprint(command, s.n[command])]
}

// Before is called with the commands of each round trip of a client, before it.
type Before func(cmds ...redis.Cmder)

func (f Before) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f Before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		f(cmd)
		return next(ctx, cmd)
	}
}

func (f Before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		f(cmds...)
		return next(ctx, cmds)
	}
}

// Names are the names of commands.
func Names(cmds []redis.Cmder) (names []string) {
	for _, cmd := range cmds {
		names = append(names, cmd.Name())
	}
	return names
}

// Fatal ends the benchmark on an error.
func Fatal(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// Subscribe adds a receiver to a channel until the test ends.
func Subscribe(ctx context.Context, t *testing.T, c *redis.Client, channel string) error {
	sub := c.Subscribe(ctx, channel)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	_, err := sub.Receive(ctx)
	return err
}

const (
	Past, Future = 1, 4102444800000 // ms: 1970, 2100
	LongLease    = Future * 1000    // us: the end of a lease
)

// Dump returns the serialized value of every key of a tag.
func Dump(ctx context.Context, t *testing.T, c *redis.Client, k string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for it := c.Scan(ctx, 0, "*{"+k+"}*", 1000).Iterator(); it.Next(ctx); {
		v, err := c.Dump(ctx, it.Val()).Result()
		if err == redis.Nil {
			continue // it has expired
		}
		require.NoError(t, err)
		out[it.Val()] = v
	}
	return out
}

// Calls returns how often the server has run each command.
func Calls(t testing.TB, c *redis.Client) map[string]int {
	t.Helper()
	out := make(map[string]int)
	stats := c.Info(t.Context(), "commandstats").Val()
	for _, m := range regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
		out[m[1]] = Must(strconv.Atoi(m[2]))
	}
	return out
}

// Soon receives within the time, or fails the test.
func Soon[T any](t testing.TB, within time.Duration, what string, c <-chan T) T {
	t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		require.FailNow(t, "not in time", "%s within %v", what, within)
	}
	panic("unreachable")
}

// Around wraps the call of a script in a function, which may run the script or not. What shares the round trip behind
// the call goes with it.
type Around struct {
	Sha string
	Do  func(run func() error) error
}

func OfScript(cmd redis.Cmder, sha string) bool {
	return len(cmd.Args()) > 1 && fmt.Sprint(cmd.Args()[1]) == sha
}

func (a *Around) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *Around) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		at := slices.IndexFunc(cmds, func(cmd redis.Cmder) bool { return OfScript(cmd, a.Sha) })
		if at < 0 || cmds[0].Name() == "script" { // with SCRIPT LOAD before it, it is not the usual call
			return next(ctx, cmds)
		}
		var err error
		if at > 0 { // calls that share the round trip
			err = next(ctx, cmds[:at])
		}
		return cmp.Or(err, a.Do(func() error { return next(ctx, cmds[at:]) }))
	}
}

func (a *Around) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if OfScript(cmd, a.Sha) {
			err := a.Do(func() error { return next(ctx, cmd) })
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// WaitFor returns when the lock has n waiters.
func WaitFor(t testing.TB, l *lock.Locker, name string, n int) {
	t.Helper()
	luatomictest.Eventually(t, 20*time.Second, fmt.Sprint(n, " wait"), func() bool {
		info, err := l.Info(t.Context(), name)
		require.NoError(t, err)
		return info.Waiting == n
	})
}

func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func CommandCalls(t *testing.T, c *redis.Client) map[string]int {
	out := make(map[string]int)
	for _, line := range strings.Split(Must(c.Info(t.Context(), "commandstats").Result()), "\r\n") {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		number, _, _ := strings.Cut(rest, ",")
		n, err := strconv.Atoi(number)
		require.NoError(t, err)
		out[name] = n
	}
	return out
}

// Every calls f at each interval until stop.
func Every(d time.Duration, f func()) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				f()
			}
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}

// StatCalls parses the calls in a line of INFO commandstats.
func StatCalls(t *testing.T, line string) int64 {
	t.Helper()
	var calls int64
	_, err := fmt.Sscanf(line, "calls=%d", &calls)
	require.NoError(t, err, line)
	return calls
}

// Long leaves the test out of "make test" (go test -short), since it takes several seconds. "make test-all" runs it.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: make test-all runs it")
	}
}
