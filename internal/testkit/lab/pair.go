package lab

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// Pair is a server and its replica, which can swap roles while existing connections stay open, as behind the host
// name of a managed service.
type Pair struct {
	Master, Replica *luatomictest.Server
	Address         atomic.Pointer[string] // the target of new connections
}

func StartPair(t *testing.T) *Pair {
	t.Helper()
	p := &Pair{Master: luatomictest.StartServer(t)}
	host, port, err := net.SplitHostPort(p.Master.Addr())
	require.NoError(t, err)
	p.Replica = luatomictest.StartServer(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	address := p.Master.Addr()
	p.Address.Store(&address)
	p.InSync(t, p.Replica)
	return p
}

func (p *Pair) InSync(t *testing.T, replica *luatomictest.Server) {
	t.Helper()
	c := replica.Client()
	luatomictest.Eventually(t, 30*time.Second, "the replica is in sync", func() bool {
		info, err := c.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
}

// Turn makes the replica the master, and the master its replica.
func (p *Pair) Turn(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	Replicated(t, p.Master.Client())
	require.NoError(t, p.Replica.Client().ReplicaOf(ctx, "NO", "ONE").Err())
	host, port, err := net.SplitHostPort(p.Replica.Addr())
	require.NoError(t, err)
	require.NoError(t, p.Master.Client().ReplicaOf(ctx, host, port).Err())
	p.Master, p.Replica = p.Replica, p.Master
	address := p.Master.Addr()
	p.Address.Store(&address)
	p.InSync(t, p.Replica)
}

// Client opens each new connection to the current master.
func (p *Pair) Client(t *testing.T) *redis.Client { return p.ClientOf(t, 10) }

func (p *Pair) ClientOf(t *testing.T, connections int) *redis.Client {
	t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", *p.Address.Load())
	}
	c := redis.NewClient(&redis.Options{Addr: "pair", PoolSize: connections, Dialer: dial})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Replicated returns when a replica has all writes so far.
func Replicated(t *testing.T, master *redis.Client) {
	t.Helper()
	c := master.Conn() // WAIT covers the writes of its own connection
	defer c.Close()
	require.NoError(t, c.Set(t.Context(), "written", 1, 0).Err())
	luatomictest.Eventually(t, 30*time.Second, "a replica has the write", func() bool {
		n, err := c.Wait(t.Context(), 1, time.Second).Result()
		return err == nil && n == 1
	})
}
