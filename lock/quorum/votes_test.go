package quorum

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
)

// kind names the outcome of the votes.
func (v *votes) kind(q *Quorum) string {
	if len(v.together()) >= q.majority() {
		return "granted"
	}
	switch err := v.failure(q); {
	case errors.Is(err, ErrClocks):
		return "clocks"
	case err != nil:
		return "failed"
	}
	return "held"
}

// collect adds the answers until they decide.
func collect(q *Quorum, all []answer[lockscript.AcquireResult]) *votes {
	v := &votes{grants: make(map[int]grant)}
	for _, a := range all {
		if v.decided(q) {
			break
		}
		v.add(a)
	}
	return v
}

// orders calls f with each order of the answers.
func orders(all []answer[lockscript.AcquireResult], n int, f func()) {
	if n == len(all) {
		f()
		return
	}
	for i := n; i < len(all); i++ {
		all[n], all[i] = all[i], all[n]
		orders(all, n+1, f)
		all[n], all[i] = all[i], all[n]
	}
}

// Each mix of answers has one outcome, in whatever order they come: servers that grant, by a right clock or one that is
// ahead or behind, that refuse, and that fail.
func TestQuorumOutcomeDoesNotDependOnTheOrderOfAnswers(t *testing.T) {
	t.Parallel()
	kinds := []answer[lockscript.AcquireResult]{
		{value: lockscript.AcquireResult{Acquired: true, Fence: 1}},
		{value: lockscript.AcquireResult{Acquired: true, Fence: 2, Now: (35 * time.Second).Microseconds()}},
		{value: lockscript.AcquireResult{Acquired: true, Fence: 3, Now: -(20 * time.Second).Microseconds()}},
		{value: lockscript.AcquireResult{}},
		{err: errors.New("away")},
	}
	seen := make(map[string]int)
	for n := 2; n <= 5; n++ {
		q := &Quorum{clients: make([]redis.UniversalClient, n)}
		mixes := 1
		for range n {
			mixes *= len(kinds)
		}
		for mix := range mixes {
			all, what := make([]answer[lockscript.AcquireResult], n), ""
			for i, rest := 0, mix; i < n; i, rest = i+1, rest/len(kinds) {
				all[i] = kinds[rest%len(kinds)]
				all[i].node = i
				what += fmt.Sprint(rest%len(kinds), " ")
			}
			want := ""
			orders(all, 0, func() {
				got := collect(q, all).kind(q)
				if want == "" {
					want = got
				}
				require.Equal(t, want, got, "%d servers, answers %s", n, what)
			})
			seen[want]++
		}
	}
	require.Len(t, seen, 4, "all kinds of outcomes")

	further := kinds[1]
	further.node, further.value.Now = 2, (80 * time.Second).Microseconds()
	behind := kinds[2]
	behind.node = 1
	last := kinds[0]
	last.node = 4
	five := &Quorum{clients: make([]redis.UniversalClient, 5)}
	v := collect(five, []answer[lockscript.AcquireResult]{kinds[1], behind, further, kinds[4], last})
	require.Len(t, v.grants, 3, "it does not wait for the last one")
}
