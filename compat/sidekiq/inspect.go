package sidekiq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/lua"
)

// Inspection is what a live system shows about its Sidekiq.
type Inspection struct {
	// Versions are the versions that its processes report, such as "7.3.2", sorted; Sidekiq up to 6 reports none.
	Versions []string
	// Sampled is the number of payloads read. Seconds and Milliseconds count those with created_at in that form:
	// seconds up to version 7, milliseconds in 8.
	Sampled, Seconds, Milliseconds int
	// Fields counts, for each field whose middleware runs in Ruby only, the payloads that have it.
	Fields map[string]int
	// Wrapped is the number of payloads of Active Job.
	Wrapped int
	// Broken is the number of payloads that cannot be read. Quarantined is the number of members that pollers of this
	// package have set aside.
	Broken, Quarantined int
	// Namespaces are prefixes of other keys that look like a Sidekiq's, without the colon; at most ten.
	Namespaces []string
	// Processes is the number of listed worker processes. Abandoned is the number of Go processes whose lease is over
	// and whose jobs nobody has put back yet.
	Processes, Abandoned int
	// WrongType are keys of Sidekiq that have another type than Sidekiq gives them. Their contents are not counted.
	WrongType []string
}

const (
	sampledQueues = 100    // queues of which payloads are read
	sampledJobs   = 5      // payloads of each queue and set
	scannedKeys   = 50_000 // keys among which other namespaces are looked for
)

// Inspect reads samples of a live system: up to 5 payloads of each set and of up to 100 queues, and what its processes
// report. It writes nothing and takes no lock, so it may miss concurrent changes. Keys: queues, queue:<name>, schedule,
// retry, dead, processes, the entries of processes, the quarantines, and SCAN over up to 50 000 keys for other
// namespaces. Cost: O(queues + processes), in a few round trips beside the SCAN. A key of another type is no error: it
// is in WrongType.
func (d *Dialect) Inspect(ctx context.Context) (Inspection, error) {
	out := Inspection{Fields: make(map[string]int)}
	for _, step := range []func(context.Context, *Inspection) error{d.sample, d.reported, d.otherNamespaces} {
		if err := step(ctx, &out); err != nil {
			return out, fmt.Errorf("sidekiq: inspect: %w", err)
		}
	}
	return out, nil
}

// sound returns the error of a command on one key, unless the key has another type.
func (out *Inspection) sound(cmd redis.Cmder) error {
	if !redis.HasErrorPrefix(cmd.Err(), "WRONGTYPE") {
		return cmd.Err()
	}
	out.WrongType = append(out.WrongType, fmt.Sprint(cmd.Args()[1]))
	return nil
}

// run sends the pipeline, and takes the reply of each command by itself.
func (out *Inspection) run(ctx context.Context, p redis.Pipeliner) error {
	cmds, _ := p.Exec(ctx) // its error is that of the first command that has one
	for _, cmd := range cmds {
		// An entry that has expired is no error.
		if err := out.sound(cmd); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}

// sample reads payloads.
func (d *Dialect) sample(ctx context.Context, out *Inspection) error {
	queues := d.client.SMembers(ctx, d.key("queues"))
	if err := out.sound(queues); err != nil {
		return err
	}
	names := queues.Val()
	slices.Sort(names)
	p := d.client.Pipeline()
	var replies []*redis.StringSliceCmd
	for _, name := range names[:min(len(names), sampledQueues)] {
		replies = append(replies, p.LRange(ctx, d.queueKey(name), -sampledJobs, -1))
	}
	for _, set := range []Set{Schedule, Retry, Dead} {
		replies = append(replies, p.ZRange(ctx, d.key(string(set)), -sampledJobs, -1))
	}
	aside := []*redis.IntCmd{p.ZCard(ctx, d.key("schedule:quarantine")), p.ZCard(ctx, d.key("retry:quarantine"))}
	if err := out.run(ctx, p); err != nil {
		return err
	}
	for _, reply := range replies {
		for _, payload := range reply.Val() {
			out.add([]byte(payload))
		}
	}
	for _, n := range aside {
		out.Quarantined += int(n.Val())
	}
	return nil
}

// add counts one payload.
func (out *Inspection) add(payload []byte) {
	out.Sampled++
	wrapped := false
	var created []byte
	var fields []string
	err := members(payload, func(m member) {
		value := payload[m.value:m.end]
		switch name := string(m.name); {
		case name == "created_at":
			created = value
		case name == "wrapped":
			wrapped = true
		case needsMiddleware(name, value):
			fields = append(fields, name)
		}
	})
	switch {
	case err != nil:
		out.Broken++
		return
	case bytes.IndexByte(created, '.') >= 0:
		out.Seconds++
	case len(created) >= 12:
		out.Milliseconds++
	}
	slices.Sort(fields)
	for _, name := range slices.Compact(fields) {
		out.Fields[name]++
	}
	if wrapped {
		out.Wrapped++
	}
}

// reported reads the processes.
func (d *Dialect) reported(ctx context.Context, out *Inspection) error {
	listed := d.client.SMembers(ctx, d.key("processes"))
	if err := out.sound(listed); err != nil {
		return err
	}
	processes := listed.Val()
	out.Processes = len(processes)
	p := d.client.Pipeline()
	infos := make([]*redis.StringCmd, len(processes))
	for i, process := range processes {
		infos[i] = p.HGet(ctx, d.key(process), "info")
	}
	now, err := d.client.Time(ctx).Result()
	if err != nil {
		return err
	}
	over := p.ZCount(ctx, d.processesKey(), "-inf", strconv.FormatInt(now.UnixMilli(), 10))
	if err := out.run(ctx, p); err != nil {
		return err
	}
	out.Abandoned = int(over.Val())
	for _, info := range infos {
		var is struct{ Version string }
		if json.Unmarshal([]byte(info.Val()), &is) == nil && is.Version != "" && is.Version != "luatomic" {
			out.Versions = append(out.Versions, is.Version)
		}
	}
	slices.Sort(out.Versions)
	out.Versions = slices.Compact(out.Versions)
	return nil
}

// otherNamespaces looks for keys named queues under other prefixes. A Redis Cluster has no Sidekiq.
func (d *Dialect) otherNamespaces(ctx context.Context, out *Inspection) error {
	var c lua.Client = d.client
	for cursor, seen := uint64(0), 0; seen < scannedKeys && len(out.Namespaces) < 10; seen += 1000 {
		keys, next, err := c.ScanType(ctx, cursor, "*:queues", 1000, "set").Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			if name := strings.TrimSuffix(key, ":queues"); name+":" != d.prefix &&
				!slices.Contains(out.Namespaces, name) {
				out.Namespaces = append(out.Namespaces, name)
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	slices.Sort(out.Namespaces)
	return nil
}
