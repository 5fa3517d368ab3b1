package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/web"
)

// A lock with more holders than a list shows says so, and its own page shows them.
func TestManyHoldersOfALock(t *testing.T) {
	t.Parallel()
	s := newSite(t, web.Options{Write: true})
	locker := lock.New(s.client, &lock.Options{Prefix: s.prefix, TTL: 10 * time.Minute})
	defer locker.Close()
	for range 60 {
		_, err := locker.Semaphore("api", 200).Acquire(t.Context(), 2)
		require.NoError(t, err)
		_, err = locker.RW("table").RAcquire(t.Context())
		require.NoError(t, err)
	}
	for kind, name := range map[string]string{"semaphore": "api", "rw": "table"} {
		luatomictest.Eventually(t, 20*time.Second, "the search for "+name+" ends in time", func() bool {
			return strings.Contains(s.ok("/locks?kind="+kind), "The 50 holders whose leases end first")
		})
		require.Contains(t, s.ok("/locks.json?kind="+kind), `"more_holders":true`)
		own := s.ok("/locks?kind=" + kind + "&name=" + name)
		require.Equal(t, 60, strings.Count(own, "Revoke"))
		require.NotContains(t, own, "whose leases end first")
	}
}
