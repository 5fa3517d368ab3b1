package luatomictest

import (
	"context"
	"fmt"
	"net"
	"slices"
)

// moveTimeoutMillis bounds one MIGRATE on the server.
const moveTimeoutMillis = 5000

// Migration is a slot that moves from one node to another. Between MigrateSlot and Finish the source returns ASK for
// keys that it no longer has, and TRYAGAIN for a command with some keys that it has and some that it has not.
type Migration struct {
	cluster  *Cluster
	slot     int
	from, to int
}

// MigrateSlot begins to move a slot between two nodes, given by their index in Nodes: the target imports, the source
// migrates, no key has moved yet. Move, MoveKeys and Finish are the further steps, so that a test can stop half-way.
func (c *Cluster) MigrateSlot(ctx context.Context, slot, from, to int) (*Migration, error) {
	if from == to || min(from, to) < 0 || max(from, to) >= len(c.nodes) {
		return nil, fmt.Errorf("migrate slot %d: no two nodes: %d and %d", slot, from, to)
	}
	m := &Migration{cluster: c, slot: slot, from: from, to: to}
	if err := m.setSlot(ctx, to, "IMPORTING", c.ids[from]); err != nil {
		return nil, err
	}
	if err := m.setSlot(ctx, from, "MIGRATING", c.ids[to]); err != nil {
		return nil, err
	}
	return m, nil
}

// Move moves up to n of the slot's keys to the target and returns how many there were.
func (m *Migration) Move(ctx context.Context, n int) (int, error) {
	keys, err := m.cluster.admin[m.from].ClusterGetKeysInSlot(ctx, m.slot, n).Result()
	if err != nil {
		return 0, fmt.Errorf("keys of slot %d: %w", m.slot, err)
	}
	return len(keys), m.MoveKeys(ctx, keys...)
}

// MoveKeys moves these keys of the slot to the target. A key that does not exist is skipped.
func (m *Migration) MoveKeys(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	host, port, err := net.SplitHostPort(m.cluster.nodes[m.to].Addr())
	if err != nil {
		return err
	}
	args := []any{"MIGRATE", host, port, "", 0, moveTimeoutMillis, "KEYS"}
	for _, key := range keys {
		args = append(args, key)
	}
	if err := m.cluster.admin[m.from].Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("move keys of slot %d: %w", m.slot, err)
	}
	return nil
}

// Finish moves the remaining keys, assigns the slot to the target and returns when every node knows that.
func (m *Migration) Finish(ctx context.Context) error {
	for {
		moved, err := m.Move(ctx, 100)
		if err != nil {
			return err
		}
		if moved == 0 {
			break
		}
	}
	// The target first: with the source first, both would redirect to each other for a short time.
	others := slices.DeleteFunc([]int{0, 1, 2}, func(i int) bool { return i == m.to || i == m.from })
	for _, i := range append([]int{m.to, m.from}, others...) {
		if err := m.setSlot(ctx, i, "NODE", m.cluster.ids[m.to]); err != nil {
			return err
		}
	}
	return nil
}

// Cancel ends the migration without moving the slot. Move keys back first, or they are unreachable.
func (m *Migration) Cancel(ctx context.Context) error {
	for _, i := range []int{m.from, m.to} {
		if err := m.setSlot(ctx, i, "STABLE"); err != nil {
			return err
		}
	}
	return nil
}

func (m *Migration) setSlot(ctx context.Context, node int, args ...any) error {
	words := append([]any{"CLUSTER", "SETSLOT", m.slot}, args...)
	if err := m.cluster.admin[node].Do(ctx, words...).Err(); err != nil {
		return fmt.Errorf("migrate slot %d: node %d: %w", m.slot, node, err)
	}
	return nil
}
