package lock_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

var (
	lockOps  = flag.Int("lockops", 20_000, "how many operations TestLockHistoriesAreLinearizable records")
	lockSeed = flag.Uint64("lockseed", 0, "its seed; 0 for a new one")
)

const (
	chaosTTL     = 400 * time.Millisecond
	chaosClients = 16
)

// guardedCount is a user's script that counts, bound to a lease.
func guardedCount() *lua.Script {
	source := "return redis.call('INCR', KEYS[1])"
	sum := func(s string) string {
		d := sha1.Sum([]byte(s))
		return hex.EncodeToString(d[:])
	}
	return &lua.Script{
		Name: "count", SHA: sum(source), Source: &source, Keys: []lua.Key{{Name: "counter", Type: "string"}},
		Guarded: lua.Text{SHA: sum(*queuescript.AckScript.Guarded.Guard + source),
			Guard: queuescript.AckScript.Guarded.Guard, Source: &source},
	}
}

// chaos is one run.
type chaos struct {
	*lockHistory
	space string
	count *lua.Script
	// release ends a lease; a test gives a broken one.
	release func(context.Context, redis.UniversalClient, *lock.Lease) error
	until   func() bool
	locks   int // how many they share
	lapses  int // one lease in so many is held for longer than it lasts
}

// client acquires, extends, writes, releases and steals until the end.
func (r *chaos) client(ctx context.Context, id int, c *redis.Client, rnd *rand.Rand) error {
	l := lock.New(c, &lock.Options{TTL: chaosTTL})
	defer l.Close()
	for !r.until() {
		name := fmt.Sprint(r.space, rnd.IntN(r.locks))
		lease := r.acquire(ctx, id, l, name, rnd)
		if lease == nil {
			continue
		}
		if err := r.use(ctx, id, c, lease, rnd); err != nil {
			return err
		}
	}
	return nil
}

func (r *chaos) acquire(ctx context.Context, id int, l *lock.Locker, name string, rnd *rand.Rand) *lock.Lease {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	what, take := didAcquire, l.Acquire
	switch n := rnd.IntN(200); {
	case n < 1:
		what, take = didSteal, l.Steal
	case n < 60:
		take = l.Try
	}
	called := time.Now()
	lease, err := take(ctx, name)
	switch {
	case err == nil:
		r.add(id, called, lockOp{what: what, name: name, fence: lease.Fence()})
	case what == didSteal:
		r.add(id, called, lockOp{what: unsureSteal, name: name})
	}
	return lease
}

// use holds the lease for a while. Some are paused for longer than it lasts, and then
// go on as if nothing had been.
func (r *chaos) use(ctx context.Context, id int, c *redis.Client, lease *lock.Lease, rnd *rand.Rand) error {
	steps := rnd.IntN(4)
	if rnd.IntN(r.lapses) == 0 {
		pause := time.NewTimer(chaosTTL + time.Duration(rnd.IntN(200))*time.Millisecond)
		<-pause.C
	}
	for range steps {
		called := time.Now()
		op := lockOp{name: lease.Name(), fence: lease.Fence()}
		if rnd.IntN(3) == 0 {
			if lease.Extend(ctx) == nil {
				op.what = didExtend
				r.add(id, called, op)
			}
			continue
		}
		call := lua.NewCall(r.count, 1, 0)
		call.Key("counter", "{"+lease.Name()+"}:count")
		call.EndKeys()
		n, err := lua.Run(ctx, lua.Guard(c, lease), call, func(r *lua.Reply) int64 { return r.Int("n") })
		switch {
		case err == nil:
			op.what, op.n = didWrite, n
			r.add(id, called, op)
		case errors.Is(err, lua.ErrOutcomeUnknown):
			op.what = unsureWrite
			r.add(id, called, op)
		case !errors.Is(err, lua.ErrFenced) && !errors.Is(err, lua.ErrNotExecuted):
			return err
		}
	}
	called := time.Now()
	op := lockOp{what: didRelease, name: lease.Name(), fence: lease.Fence()}
	err := r.release(ctx, c, lease)
	if err != nil {
		// Also a loss: by this process' clock the lease ends before the server's time, and
		// a release in between does free the lock.
		op.what = unsureRelease
	}
	r.add(id, called, op)
	return nil
}

// pausing takes locks in a process of its own and stops it for longer than a lease.
func (r *chaos) pausing(id int, p *order, name string) {
	p.do("locker %v %v", chaosTTL, chaosTTL)
	for !r.until() {
		called := time.Now()
		text, ok := strings.CutPrefix(p.do("acquire a"), "fence ")
		if !ok {
			continue
		}
		var fence int64
		_, _ = fmt.Sscan(text, &fence)
		r.add(id, called, lockOp{what: didAcquire, name: name, fence: fence})
		p.pause()
		sleep := time.NewTimer(chaosTTL + 50*time.Millisecond)
		<-sleep.C
		called = time.Now()
		p.resume()
		op := lockOp{what: didRelease, name: name, fence: fence}
		if p.do("release a") != "<nil>" {
			op.what = unsureRelease
		}
		r.add(id, called, op)
	}
}

// run makes a history: clients behind proxies whose connections are cut, a script
// cache that is flushed, a process that is stopped while it holds.
func (r *chaos) run(t *testing.T, ops int, within time.Duration, seed uint64) {
	server := luatomictest.StartServer(t)
	ctx, cancel := context.WithTimeout(t.Context(), within+time.Minute)
	defer cancel()
	end := time.Now().Add(within)
	r.until = func() bool {
		late := time.Now().After(end) && r.has(didAcquire, didExtend, didRelease, didWrite)
		return r.len() >= ops || late || ctx.Err() != nil
	}
	r.space, r.count = "x", guardedCount()
	var wg sync.WaitGroup
	errs := make(chan error, chaosClients)
	proxies := make([]*luatomictest.LossyProxy, chaosClients)
	for id := range chaosClients {
		c, proxy := proxied(t, server.URL())
		proxies[id] = proxy
		wg.Go(func() { errs <- r.client(ctx, id, c, rand.New(rand.NewPCG(seed, uint64(id)))) })
	}
	p := startLockProcess(t, server.URL(), "x0")
	wg.Go(func() { r.pausing(chaosClients, p, "x0") })
	rnd, c := rand.New(rand.NewPCG(seed, chaosClients)), server.Client()
	for !r.until() {
		pause := time.NewTimer(20 * time.Millisecond)
		<-pause.C
		switch proxy := proxies[rnd.IntN(chaosClients)]; rnd.IntN(4) {
		case 0:
			proxy.CutAll()
		case 1:
			proxy.Drop(1, luatomictest.Command("EVALSHA"))
		case 2:
			proxy.DropRequest(1, luatomictest.Command("EVALSHA"))
		case 3:
			_ = c.ScriptFlush(ctx).Err()
		}
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

// Sixteen clients and a process under faults: whatever they did is explained by one
// lock that fences, hands over and forgets nothing.
func TestLockHistoriesAreLinearizable(t *testing.T) {
	t.Parallel()
	seed := *lockSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	within := 10 * time.Second
	if *lockOps > 20_000 {
		within = time.Duration(*lockOps) * time.Millisecond
	}
	r := &chaos{lockHistory: newLockHistory(), locks: 16, lapses: 200,
		release: func(ctx context.Context, _ redis.UniversalClient, l *lock.Lease) error {
			return l.Release(ctx)
		}}
	r.run(t, *lockOps, within, seed)
	kinds := make(map[int]int)
	for _, op := range r.ops {
		kinds[op.Input.(lockOp).what]++
	}
	start := time.Now()
	result := porcupine.CheckOperationsTimeout(lockModel(chaosTTL), r.ops, 4*time.Minute)
	t.Logf("-lockseed=%d: %d operations %v, checked in %v", seed, len(r.ops), kinds, time.Since(start))
	if result == porcupine.Illegal {
		t.Fatal(whereItFails(lockModel(chaosTTL), r.ops))
	}
	require.Equal(t, porcupine.Ok, result)
	for _, what := range []int{didAcquire, didExtend, didRelease, didWrite} {
		require.Positive(t, kinds[what])
	}
}

// The next holder's fence may be of a moment before the end of the last lease, its reply may not.
func TestLockModelKnowsWhenALeaseIsOver(t *testing.T) {
	t.Parallel()
	ms := func(n int64) int64 { return n * 1000 }
	check := func(fence, replied int64) bool {
		first := lockOp{what: didAcquire, fence: ms(1), returned: ms(2)}
		next := lockOp{what: didAcquire, fence: ms(fence), called: ms(3), returned: ms(replied)}
		return porcupine.CheckOperations(lockModel(chaosTTL), []porcupine.Operation{
			{ClientId: 0, Input: first, Call: 0, Return: ms(2)},
			{ClientId: 1, Input: next, Call: ms(3), Return: ms(replied)},
		})
	}
	require.True(t, check(401, 402))
	require.True(t, check(392, 401), "the server got no time between the clock and the look at the lease")
	require.False(t, check(392, 399))
	require.False(t, check(200, 201))
}

// The same clients with a release that does not compare the owner: the checker sees
// that one client acquired a lock that another still held.
func TestLockHistoryCatchesABrokenRelease(t *testing.T) {
	t.Parallel()
	broken := redis.NewScript(`
		local record = redis.call('GET', KEYS[1])
		if record then
		  local f, sign = string.match(record, '^2 (%d+) (%d)')
		  redis.call('SET', KEYS[1], '2 ' .. f .. ' ' .. sign .. ' - - 0 0 ', 'PX', 60000)
		end
		return 1`)
	// It takes a release of a lapsed lease while another holds the lock; not every run
	// has one.
	for round, start := 0, time.Now(); round < 8 || time.Since(start) < time.Minute; round++ {
		r := &chaos{lockHistory: newLockHistory(), locks: 3, lapses: 20,
			release: func(ctx context.Context, c redis.UniversalClient, l *lock.Lease) error {
				return broken.Eval(ctx, c, []string{l.Key()}).Err()
			}}
		r.run(t, 4_000, 3*time.Second, rand.Uint64())
		if porcupine.CheckOperationsTimeout(lockModel(chaosTTL), r.ops, time.Minute) == porcupine.Illegal {
			t.Logf("caught in round %d", round)
			return
		}
	}
	require.Fail(t, "the checker let a broken release pass")
}
