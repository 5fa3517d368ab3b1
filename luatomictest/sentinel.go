package luatomictest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/luatomic/luatomic/luatomictest/internal/ready"
	"github.com/redis/go-redis/v9"
)

// sentinelName is the sentinel's name of its master.
const sentinelName = "luatomictest"

// Sentinel is a master, its replica, and one sentinel that monitors them, for one test.
type Sentinel struct {
	t        testing.TB
	servers  []*Server
	sentinel *Server
	ask      *redis.SentinelClient // one for all questions: a wait asks many times
}

// StartSentinel starts the three processes from PATH and returns when the replica is in sync and the sentinel knows
// it. A master that does not answer for five seconds is replaced. The processes end with the test.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	master := StartServer(t)
	host, port, _ := net.SplitHostPort(master.Addr())
	replica := StartServer(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 1\nsentinel down-after-milliseconds %[1]s 5000\n"+
		"sentinel failover-timeout %[1]s 5000\n", sentinelName, host, port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, follower := newSentinel(t, StartServer(t, conf, "--sentinel"), master, replica), replica.Client()
	Eventually(t, readyWithin, "the sentinel knows a replica that is in sync", func() bool {
		info, err := follower.Info(t.Context(), "replication").Result()
		replicas, _ := s.ask.Replicas(t.Context(), sentinelName).Result()
		return err == nil && strings.Contains(info, "master_link_status:up") &&
			len(replicas) == 1 && replicas[0]["master-link-status"] == "ok"
	})
	return s
}

func newSentinel(t testing.TB, sentinel *Server, servers ...*Server) *Sentinel {
	ask := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr()})
	t.Cleanup(func() { _ = ask.Close() })
	return &Sentinel{t: t, servers: servers, sentinel: sentinel, ask: ask}
}

// Client returns a client that follows the master, closed when the test ends.
func (s *Sentinel) Client() *redis.Client {
	s.t.Helper()
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: sentinelName, SentinelAddrs: []string{s.sentinel.Addr()}, Protocol: protocol(),
	})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Master returns the server that is the master according to the sentinel.
func (s *Sentinel) Master(ctx context.Context) *Server {
	s.t.Helper()
	addr, err := s.ask.GetMasterAddrByName(ctx, sentinelName).Result()
	for _, server := range s.servers {
		if err == nil && net.JoinHostPort(addr[0], addr[1]) == server.Addr() {
			return server
		}
	}
	s.t.Fatalf("luatomictest: the sentinel names no server of its own: %v %v", addr, err)
	return nil
}

// FailOver makes the sentinel replace the master, and returns when the old master is a replica of the new one. Until
// then, for some seconds, the old master accepts writes that are lost.
func (s *Sentinel) FailOver(ctx context.Context) {
	s.t.Helper()
	before := s.Master(ctx)
	var err error
	// On a busy machine the sentinel may reject its replica for a while.
	if !ready.Within(readyWithin, func() bool { err = s.ask.Failover(ctx, sentinelName).Err(); return err == nil }) {
		s.t.Fatalf("luatomictest: failover: %v", err)
	}
	s.Replaced(ctx, before)
	old := before.Client()
	Eventually(s.t, time.Minute, "the old master is a replica in sync", func() bool {
		return strings.Contains(old.Info(ctx, "replication").Val(), "master_link_status:up")
	})
}

// Replaced returns when another server is the master according to the sentinel.
func (s *Sentinel) Replaced(ctx context.Context, before *Server) {
	s.t.Helper()
	Eventually(s.t, time.Minute, "another server is the master", func() bool {
		master := s.Master(ctx)
		return master != before && strings.Contains(master.Client().Info(ctx, "replication").Val(), "role:master")
	})
}
