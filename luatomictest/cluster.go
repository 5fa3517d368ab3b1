package luatomictest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	clusterSlots = 16384
	clusterNodes = 3
	clusterReady = 60 * time.Second
)

// Cluster is a cluster of three masters for one test. It has no replicas. The masters share the 16384 slots in equal
// ranges.
type Cluster struct {
	t     testing.TB
	nodes []*Server
	ids   []string
	admin []*redis.Client
}

// StartCluster starts three server processes from PATH as a cluster and returns when every node sees all slots served
// and the state ok, which takes about three seconds (a new master refuses writes for two). It ends with the test.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), clusterReady)
	defer cancel()
	var c *Cluster
	var err error
	// A process that is no test can take the port of a node's bus. Then the start fails, and new ports are tried.
	for range 3 {
		if c, err = formCluster(ctx, t); err == nil {
			Eventually(t, clusterReady, "every node of the cluster reports cluster_state:ok", func() bool {
				return c.ready(ctx)
			})
			return c
		}
	}
	t.Fatalf("luatomictest: form the cluster: %v", err)
	return nil
}

// formCluster starts the nodes and introduces them to each other.
func formCluster(ctx context.Context, t testing.TB) (*Cluster, error) {
	t.Helper()
	c := &Cluster{t: t, nodes: make([]*Server, clusterNodes)}
	errs := make([]error, clusterNodes)
	var starting sync.WaitGroup
	for i := range c.nodes {
		starting.Go(func() {
			c.nodes[i], errs[i] = newServer(t, []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "5000"})
		})
	}
	starting.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, node := range c.nodes {
		c.admin = append(c.admin, node.Client())
	}
	return c, c.join(ctx)
}

// Nodes returns the servers. They serve equal ranges of slots in this order, until a slot is migrated.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// Addrs returns the host:port of every node.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, node := range c.nodes {
		addrs[i] = node.Addr()
	}
	return addrs
}

// Client returns a cluster client that has loaded the slots. It is closed when the test ends.
func (c *Cluster) Client(opts ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	c.t.Helper()
	options := &redis.ClusterOptions{Addrs: c.Addrs(), Protocol: protocol()}
	for _, opt := range opts {
		opt(options)
	}
	client := redis.NewClusterClient(options)
	c.t.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		c.t.Fatalf("luatomictest: the cluster does not answer: %v", err)
	}
	return client
}

// Slot returns the slot of a key, computed by the server.
func (c *Cluster) Slot(ctx context.Context, key string) (int, error) {
	slot, err := c.admin[0].ClusterKeySlot(ctx, key).Result()
	return int(slot), err
}

// Owner returns the index in Nodes of the master that serves a slot, as that node itself reports it.
func (c *Cluster) Owner(ctx context.Context, slot int) (int, error) {
	for i, admin := range c.admin {
		//lint:ignore SA1019 the client's decoder of the newer CLUSTER SHARDS refuses Valkey 9.1's reply
		ranges, err := admin.ClusterSlots(ctx).Result()
		if err != nil {
			return 0, fmt.Errorf("slots of node %d: %w", i, err)
		}
		for _, r := range ranges {
			if slot >= r.Start && slot <= r.End && len(r.Nodes) > 0 && r.Nodes[0].ID == c.ids[i] {
				return i, nil
			}
		}
	}
	return 0, fmt.Errorf("no node serves slot %d", slot)
}

// join gives each node its slots and its own config epoch (two equal ones need an election), then introduces the
// others to the first.
func (c *Cluster) join(ctx context.Context) error {
	for i, admin := range c.admin {
		id, err := admin.ClusterMyID(ctx).Result()
		if err != nil {
			return err
		}
		c.ids = append(c.ids, id)
		first, end := i*clusterSlots/clusterNodes, (i+1)*clusterSlots/clusterNodes
		if err := admin.ClusterAddSlotsRange(ctx, first, end-1).Err(); err != nil {
			return err
		}
		if err := admin.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
	}
	for _, node := range c.nodes[1:] {
		host, port, _ := strings.Cut(node.Addr(), ":")
		if err := c.admin[0].ClusterMeet(ctx, host, port).Err(); err != nil {
			return err
		}
	}
	return nil
}

// ready checks every node, because each has its own view.
func (c *Cluster) ready(ctx context.Context) bool {
	for _, admin := range c.admin {
		info, err := admin.ClusterInfo(ctx).Result()
		if err != nil {
			return false
		}
		for _, want := range []string{
			"cluster_state:ok", "cluster_slots_ok:" + strconv.Itoa(clusterSlots),
			"cluster_known_nodes:" + strconv.Itoa(clusterNodes),
		} {
			if !strings.Contains(info, want) {
				return false
			}
		}
		// Published messages pass between nodes over these links, and are lost without them.
		nodes, err := admin.ClusterNodes(ctx).Result()
		if err != nil || strings.Count(nodes, " connected") != clusterNodes {
			return false
		}
	}
	return true
}
