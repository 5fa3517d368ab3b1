package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// journal records which tenant's jobs ran, in order, and how many ran together.
type journal struct {
	mu            sync.Mutex
	ran           []string
	running, most int
}

func (j *journal) work(_ context.Context, tenant string, _ *luatomic.Delivery) error {
	j.mu.Lock()
	j.ran = append(j.ran, tenant)
	j.running++
	j.most = max(j.most, j.running)
	j.mu.Unlock()
	time.Sleep(5 * time.Millisecond) // the work
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running--
	return nil
}

func (j *journal) count(tenant string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, t := range j.ran {
		if t == tenant {
			n++
		}
	}
	return n
}

func TestBacklogOfOneTenantDoesNotDelayTheOther(t *testing.T) {
	t.Parallel()
	client, name := luatomictest.Client(t), luatomictest.Namespace(t)
	push := func(tenant string, n int) {
		q, err := luatomic.NewQueue(client, name+tenant, &luatomic.QueueOptions{Tag: name})
		require.NoError(t, err)
		_, err = q.Push(t.Context(), make([]luatomic.Job, n)...)
		require.NoError(t, err)
	}
	for range 5 {
		push("acme", 1000)
	}

	var seen journal
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, client, config{
			prefix: name, tag: name, tenants: []string{"acme", "globex"}, workers: 2, work: seen.work,
		})
	}()
	luatomictest.Eventually(t, 10*time.Second, "acme uses all workers", func() bool { return seen.count("acme") >= 4 })
	push("globex", 10)
	luatomictest.Eventually(t, 10*time.Second, "globex is served", func() bool { return seen.count("globex") == 10 })
	require.Less(t, seen.count("acme"), 5000, "globex did not wait for the backlog of acme")
	interrupt()
	require.NoError(t, <-ended, "Ctrl-C is no failure")
	require.Equal(t, 2, seen.most, "one tenant alone used both workers, and no third ran")

	q, err := luatomic.NewQueue(client, name+"acme", &luatomic.QueueOptions{Tag: name})
	require.NoError(t, err)
	stats, err := q.Stats(context.Background())
	require.NoError(t, err)
	require.EqualValues(t, 5000-seen.count("acme"), stats.Ready, "what did not run is ready again")
}

func TestTenantsHaveNoBlanksAndAreNotEmpty(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"acme", "globex"}, names("acme, globex,"))
	err := run(t.Context(), luatomictest.Client(t), config{tag: "t", tenants: names(""), workers: 1})
	require.ErrorContains(t, err, "no queue is given")
}

func TestBadSettingsEndThePool(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), luatomictest.Client(t), config{tenants: []string{"{}"}, workers: 1})
	require.ErrorContains(t, err, "bad name")
	err = run(t.Context(), luatomictest.Client(t), config{tag: "t", tenants: []string{"acme"}})
	require.ErrorContains(t, err, "0 workers")
}

func TestMissingServerIsNamed(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://:secret@127.0.0.1:1")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := open(ctx, config{prefix: "w-", tag: "w", tenants: []string{"acme"}, workers: 1, work: show})
	require.ErrorContains(t, err, "cannot use REDIS_URL, 127.0.0.1:1: ")
	require.ErrorContains(t, err, "; start a server there")
	require.NotContains(t, err.Error(), "secret")
}
