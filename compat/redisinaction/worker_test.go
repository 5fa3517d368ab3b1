package redisinaction_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func newWorker(
	t testing.TB, c *redisinaction.Client, name string, onError func(redisinaction.Item, error), queues ...string,
) *redisinaction.Worker {
	t.Helper()
	w, err := c.NewWorker(name, queues, &redisinaction.WorkerOptions{OnError: onError})
	require.NoError(t, err)
	return w
}

func TestWorkerTakesItemsOfBothForms(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c, r, prefix := own(t)
	w := newWorker(t, c, "w", nil, "first", "second")
	require.NoError(t, r.RPush(ctx, prefix+"queue:second", `["plain", [2]]`).Err())
	require.NoError(t, r.RPush(ctx, prefix+"queue:first", `["id", "elsewhere", "full", [1]]`).Err())

	got, err := w.Take(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"id", "elsewhere", "full", "[1]"},
		[]string{got.ID, got.Queue, got.Name, string(got.Args)})
	require.False(t, got.Again)
	require.Equal(t, []string{string(got.Raw)}, r.LRange(ctx, prefix+"working:w", 0, -1).Val())
	again, err := newWorker(t, c, "w", nil, "second").Take(ctx)
	require.NoError(t, err)
	require.True(t, again.Again, "the next worker of that name starts with it")
	require.Equal(t, got.Raw, again.Raw)
	require.NoError(t, w.Done(ctx, got))
	require.NoError(t, w.Done(ctx, got))

	got, err = w.Take(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"", "second", "plain", "[2]"}, []string{got.ID, got.Queue, got.Name, string(got.Args)})
	again, err = newWorker(t, c, "w", nil, "second").Take(ctx)
	require.NoError(t, err)
	require.Equal(t, "second", again.Queue)
	again, err = w.Take(ctx)
	require.NoError(t, err)
	require.Empty(t, again.Queue, "it may be of either")
	require.NoError(t, w.Done(ctx, got))

	require.NoError(t, r.RPush(ctx, prefix+"queue:first", `["", "elsewhere", "full", []]`).Err())
	got, err = w.Take(ctx)
	require.NoError(t, err)
	require.Equal(t, "elsewhere", got.Queue)
	require.NoError(t, w.Done(ctx, got))
	require.Empty(t, r.Keys(ctx, prefix+"*").Val())
}

func TestWorkerInput(t *testing.T) {
	t.Parallel()
	c, _, _ := own(t)
	for name, queues := range map[string][]string{"": {"q"}, "none": nil, "empty": {"q", ""}} {
		_, err := c.NewWorker(name, queues, nil)
		require.ErrorIs(t, err, lua.ErrBadName)
	}
}

// A waiting worker takes an item of its first queue immediately, and polls the others soon.
func TestWorkerWaits(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	r := luatomictest.StartServer(t).Client()
	w := newWorker(t, redisinaction.New(r, nil), "w", nil, "first", "second")
	for _, q := range []string{"first", "second"} {
		got := make(chan redisinaction.Item, 1)
		go func() {
			item, err := w.Take(ctx)
			if err != nil {
				t.Error(err)
			}
			got <- item
		}()
		luatomictest.Eventually(t, 30*time.Second, "it waits", func() bool {
			return strings.Contains(r.Info(ctx, "clients").Val(), "blocked_clients:1")
		})
		require.NoError(t, r.RPush(ctx, "queue:"+q, `["n", []]`).Err())
		item := <-got
		require.Equal(t, q, item.Queue)
		require.False(t, item.Again)
		require.NoError(t, w.Done(ctx, item))
	}
	short, cancel := context.WithCancel(ctx)
	time.AfterFunc(10*time.Millisecond, cancel)
	_, err := w.Take(short)
	require.ErrorIs(t, err, context.Canceled)
}

func TestWorkerRuns(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(bounded(t))
	c, r, prefix := own(t)
	require.NoError(t, r.RPush(ctx, prefix+"queue:q", "malformed", "", item("fails"), item("panics"),
		item("works"), item("stays"), item("left")).Err())
	type report struct{ raw, err string }
	var reports []report
	w := newWorker(t, c, "w", func(i redisinaction.Item, err error) {
		reports = append(reports, report{string(i.Raw), err.Error()})
	}, "q")
	var ran []string
	err := w.Run(ctx, func(_ context.Context, i redisinaction.Item) error {
		ran = append(ran, i.ID)
		switch i.ID {
		case "fails":
			return errors.New("its own")
		case "panics":
			panic("in the handler")
		case "stays":
			cancel()
			return errors.New("no time left")
		}
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"fails", "panics", "works", "stays"}, ran)
	require.Len(t, reports, 4)
	require.Equal(t, "malformed", reports[0].raw)
	require.Contains(t, reports[0].err, "malformed item")
	require.Equal(t, report{item("fails"), "its own"}, reports[2])
	require.Equal(t, item("panics"), reports[3].raw)
	require.Regexp(t, `^redisinaction: handler of item "panics" panicked: in the handler\n(?s:.*)worker_test.go`,
		reports[3].err, "with its stack")
	ctx = t.Context()
	require.Equal(t, []string{"malformed", ""}, r.LRange(ctx, prefix+"malformed:", 0, -1).Val())
	require.Equal(t, []string{item("stays")}, r.LRange(ctx, prefix+"working:w", 0, -1).Val())
	require.Equal(t, []string{item("left")}, r.LRange(ctx, prefix+"queue:q", 0, -1).Val())
}

// When the server refuses a take, no item is lost, and Run continues.
func TestWorkerGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(bounded(t))
	c, r, prefix := own(t)
	require.NoError(t, r.Set(ctx, prefix+"queue:q", "no list", 0).Err())
	errs := make(chan error, 100)
	w := newWorker(t, c, "w", func(_ redisinaction.Item, err error) { errs <- err }, "q")
	done := make(chan error, 1)
	go func() {
		done <- w.Run(ctx, func(context.Context, redisinaction.Item) error { cancel(); return nil })
	}()
	require.ErrorIs(t, <-errs, lua.ErrWrongType)
	require.NoError(t, r.Del(ctx, prefix+"queue:q").Err())
	require.NoError(t, r.RPush(ctx, prefix+"queue:q", item("a")).Err())
	require.ErrorIs(t, <-done, context.Canceled)
	require.Zero(t, r.Exists(t.Context(), prefix+"working:w").Val())
}

// Replies of scripts and of the blocking command are lost: no item is.
func TestWorkerWithLostReplies(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(bounded(t))
	direct, r, prefix := own(t)
	c, _, proxy := proxied(t, prefix)
	const n = 40
	got := make(map[string]int)
	w := newWorker(t, c, "w", func(_ redisinaction.Item, err error) { require.ErrorIs(t, err, io.EOF) }, "q")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Run(ctx, func(_ context.Context, i redisinaction.Item) error {
			got[i.Name]++
			if len(got) == n {
				cancel()
			}
			return nil
		})
	}()
	for i := range n {
		switch i % 3 {
		case 0:
			proxy.Drop(1, luatomictest.Command("EVALSHA"))
		case 1:
			proxy.Drop(1, luatomictest.Command("BLMOVE"))
		default:
			proxy.Drop(1, luatomictest.Command("LREM"))
		}
		_, err := direct.ExecuteLater(ctx, "q", fmt.Sprint(i), nil, 0)
		require.NoError(t, err)
	}
	<-done
	require.Len(t, got, n)
	for name, times := range got {
		require.Equal(t, 1, times, name)
	}
	require.Zero(t, r.LLen(t.Context(), prefix+"queue:q").Val())
}

// A server over its memory limit accepts no new work; workers can finish existing items.
func TestAFullServerIsDrained(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	server := luatomictest.StartServer(t, "--maxmemory-policy", "noeviction")
	r := server.Client()
	c := redisinaction.New(r, nil)
	_, err := c.ExecuteAll(ctx, "q", redisinaction.Task{Name: "late", Delay: time.Microsecond},
		redisinaction.Task{Name: "now"})
	require.NoError(t, err)
	require.NoError(t, r.RPush(ctx, "queue:q", "malformed").Err())
	// The scripts are loaded before: a server at maxmemory loads none.
	require.NoError(t, lua.Preload(ctx, r, redisinaction.Scripts()...))
	require.NoError(t, r.ConfigSet(ctx, "maxmemory", "1mb").Err())
	require.ErrorContains(t, r.Set(ctx, "x", "y", 0).Err(), "OOM")
	_, err = c.ExecuteLater(ctx, "q", "n", nil, 0)
	require.ErrorContains(t, err, "OOM")
	require.ErrorIs(t, err, lua.ErrNotExecuted)

	out, err := c.PollQueue(ctx)
	require.NoError(t, err)
	require.Equal(t, 1, out.Moved)
	w := newWorker(t, c, "w", nil, "q")
	for _, want := range []string{"now", "", "late"} {
		got, err := w.Take(ctx)
		require.Equal(t, want == "", errors.Is(err, redisinaction.ErrMalformed), "%v", err)
		require.Equal(t, want, got.Name)
		if err == nil {
			require.NoError(t, w.Done(ctx, got))
		}
	}
	require.Equal(t, []string{"malformed"}, r.LRange(ctx, "malformed:", 0, -1).Val())
	id, err := c.AcquireLock(ctx, "l", nil)
	require.ErrorContains(t, err, "OOM")
	require.Empty(t, id)
	require.Equal(t, redis.Nil, r.Get(ctx, "lock:l").Err())
}

// A take whose reply is lost takes no second item.
func TestATakeWithoutAReplyTakesOneItem(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	_, r, prefix := own(t)
	c, _, proxy := proxied(t, prefix)
	blocking := luatomictest.Command("BLMOVE")
	proxy.Drop(1, func(args []string) bool {
		if !blocking(args) {
			return false
		}
		return r.RPush(ctx, prefix+"queue:q", item("1"), item("2")).Err() == nil
	})
	w := newWorker(t, c, "w", nil, "q")
	for _, id := range []string{"1", "2"} {
		for range 2 {
			got, err := w.Take(ctx)
			require.NoError(t, err)
			require.Equal(t, id, got.ID, "until Done it is the same item")
			require.Equal(t, []string{item(id)}, r.LRange(ctx, prefix+"working:w", 0, -1).Val())
		}
		got, err := w.Take(ctx)
		require.NoError(t, err)
		require.NoError(t, w.Done(ctx, got))
	}
}

// A worker is stopped while it takes an item: the next one of its name has it.
func TestAnItemOfAStoppedTakeStaysForTheNextWorker(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	_, r, prefix := own(t)
	c, _, proxy := proxied(t, prefix)
	running, stop := context.WithCancel(ctx)
	defer stop()
	blocking := luatomictest.Command("BLMOVE")
	proxy.Drop(1, func(args []string) bool {
		if !blocking(args) {
			return false
		}
		stop()
		return r.RPush(ctx, prefix+"queue:q", item("1")).Err() == nil
	})
	require.ErrorIs(t, newWorker(t, c, "w", nil, "q").Run(running, func(context.Context, redisinaction.Item) error {
		t.Error("its reply was lost")
		return nil
	}), context.Canceled)
	got, err := newWorker(t, c, "w", nil, "q").Take(ctx)
	require.NoError(t, err)
	require.Equal(t, "1", got.ID)
	require.True(t, got.Again)
}

func TestAWorkerHasAtMostAHundredQueues(t *testing.T) {
	t.Parallel()
	c, _, _ := own(t)
	queues := make([]string, 101)
	for i := range queues {
		queues[i] = fmt.Sprint("q", i)
	}
	_, err := c.NewWorker("w", queues, nil)
	require.ErrorIs(t, err, lua.ErrTooLarge)
	_, err = c.NewWorker("w", queues[:100], nil)
	require.NoError(t, err)
}

// Without a handler each item would be lost: it is removed when its handler panics.
func TestAWorkerWithoutAHandlerTakesNothing(t *testing.T) {
	t.Parallel()
	c, r, prefix := own(t)
	require.NoError(t, r.RPush(t.Context(), prefix+"queue:q", item("a")).Err())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	w, err := c.NewWorker("w", []string{"q"}, nil)
	require.NoError(t, err)
	require.ErrorContains(t, w.Run(ctx, nil), "no handler")
	require.Equal(t, []string{item("a")}, r.LRange(t.Context(), prefix+"queue:q", 0, -1).Val())
}

// A user who may not remove an item that has run takes none: each start of the worker would run it again.
func TestAWorkerThatMayNotRemoveTakesNothing(t *testing.T) {
	t.Parallel()
	ctx, server := bounded(t), luatomictest.StartServer(t)
	r := server.Client()
	require.NoError(t, r.Do(ctx, "ACL", "SETUSER", "limited", "on", ">pw", "allkeys", "+@all", "-lrem").Err())
	limited := server.Client(func(o *redis.Options) { o.Username, o.Password = "limited", "pw" })
	require.NoError(t, r.RPush(ctx, "queue:q", item("1")).Err())
	_, err := newWorker(t, redisinaction.New(limited, nil), "w", nil, "q").Take(ctx)
	require.ErrorContains(t, err, "run this command")
	require.Equal(t, []string{"queue:q"}, r.Keys(ctx, "*").Val())
}

// A queue whose key has another type holds up no other queue of its worker, and is reported when these are empty.
func TestAQueueOfAnotherTypeHoldsUpNoOtherOfItsWorker(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	c, r, prefix := own(t)
	require.NoError(t, r.Set(ctx, prefix+"queue:bad", "no list", 0).Err())
	require.NoError(t, r.RPush(ctx, prefix+"queue:good", `["n", [1]]`, `["n", [2]]`).Err())
	for i, queues := range [][]string{{"bad", "good"}, {"good", "bad"}} {
		w := newWorker(t, c, fmt.Sprint(i), nil, queues...)
		got, err := w.Take(ctx)
		require.NoError(t, err)
		require.Equal(t, "good", got.Queue)
		require.NoError(t, w.Done(ctx, got))
	}
	_, err := newWorker(t, c, "w", nil, "good", "bad").Take(ctx)
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.ErrorContains(t, err, "queue:bad")
}
