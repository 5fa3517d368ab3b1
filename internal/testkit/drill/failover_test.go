package main

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/drill/history"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

var failovers = flag.Int("drill.failovers", 0, "failovers of TestDrillOfFailovers; 0: 3, in the long form 60")

// A replica takes over, again and again, while the old master still serves its clients for up to 200 ms, as behind a
// partition. What the old master confirmed meanwhile is lost, and counted. What a replica had is not: no job that it
// knew of is lost, none that it knew to be over comes back, and fences grow.
func TestDrillOfFailovers(t *testing.T) {
	t.Parallel()
	rounds := 3
	if os.Getenv("LUATOMIC_DRILL") != "" {
		rounds = 60
	}
	override(&rounds, *failovers)
	seed := rand.Uint64()
	override(&seed, *drillSeed)
	t.Logf("-drill.seed=%d", seed)
	f := openField(t, seed, nil, "producer", "producer", "consumer", "consumer", "consumer", "taker", "poller",
		"holder", "holder")
	replica := f.replica()
	for range rounds {
		stop, before := f.mark(), f.operations()
		f.wait(time.Second)
		f.eventually("work goes on", func() error {
			if f.operations() < before+20 {
				return errors.New("too few operations")
			}
			return nil
		})
		old := f.promote(replica)
		stop()
		old.Kill()
		replica = f.replica()
	}
	f.drain()
	all, violations := f.check()
	f.report(all)
	losses := history.LossesOf(all)
	t.Logf("%+v", losses)
	f.require(violations)
	require.Equal(t, rounds, losses.Failovers)
	require.Positive(t, losses.Pushed)
}

// replica returns a replica of the server that has all of its data.
func (f *field) replica() *luatomictest.Server {
	ctx := f.t.Context()
	s := luatomictest.StartServer(f.t, persistent...)
	c := s.Client()
	host, port, err := net.SplitHostPort(f.server.Addr())
	require.NoError(f.t, err)
	f.eventually("the master syncs at once", func() error {
		return f.admin.ConfigSet(ctx, "repl-diskless-sync-delay", "0").Err()
	})
	require.NoError(f.t, c.ReplicaOf(ctx, host, port).Err())
	luatomictest.Eventually(f.t, 60*time.Second, "the replica is in step", func() bool {
		return strings.Contains(c.Info(ctx, "replication").Val(), "master_link_status:up")
	})
	return s
}

// mark writes down, until the caller stops it, how far the replica has followed.
func (f *field) mark() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	c := f.server.Client().Conn() // WAIT covers the writes of its own connection, and what came before them
	var marking sync.WaitGroup
	marking.Go(func() {
		defer c.Close()
		for ctx.Err() == nil {
			f.marks++
			f.log.Add(history.Record{Kind: history.Replicated, N: f.marks})
			if c.Set(ctx, "drill:mark", f.marks, 0).Err() == nil && c.Wait(ctx, 1, 50*time.Millisecond).Val() == 1 {
				f.log.Add(history.Record{Kind: history.Replicated, N: f.marks, Text: history.OK})
			}
			sleep(ctx, 5*time.Millisecond)
		}
	})
	return func() {
		cancel()
		marking.Wait()
	}
}

// promote makes the replica the master, and then leads all processes to it. It returns the old master, which no
// process reaches any longer.
func (f *field) promote(replica *luatomictest.Server) (old *luatomictest.Server) {
	f.log.Add(history.Record{Kind: history.Failover})
	c := replica.Client()
	require.NoError(f.t, c.ReplicaOf(f.t.Context(), "no", "one").Err())
	f.wait(200 * time.Millisecond)
	for _, p := range f.proxies {
		p.Redirect(f.t, replica.URL())
	}
	old, f.server = f.server, replica
	f.admin, f.queue = c, lab.Must(newQueue(c, nil))
	f.log.Add(history.Record{Kind: history.Failover})
	return old
}
