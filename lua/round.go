package lua

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/internal/send"
)

// round sends many calls at once, in one pipeline for each node.
type round struct {
	client  Client
	byTag   bool // the rows of one command must have one hash tag: there may be several servers
	ordered bool // the calls run in their order

	replicas int // whose acknowledgement of the writes is waited for
	timeout  time.Duration
	acked    int
	waitErr  error

	crossSlot bool // rows of several slots were refused
}

// send makes one attempt for each call: in one pipeline for calls whose script is loaded, and in a pipeline for each
// node for calls whose script is missing or that wait for replicas.
func (r *round) send(ctx context.Context, calls []*Call) {
	if i := slices.IndexFunc(calls, func(c *Call) bool { return c.replica }); i >= 0 {
		// go-redis closes the connection to a replica after a single command, but not after a pipeline. So one call is
		// sent first. While it reaches a replica, the others are not sent.
		first := calls[i]
		first.sendAlone(ctx, r.client, first.cold())
		r.confirm(calls[i:i+1], 0, nil)
		if redis.HasErrorPrefix(first.cmd.Err(), codeReadOnly) {
			return
		}
		calls = slices.Concat(calls[:i], calls[i+1:])
	}
	pipe := r.client.Pipeline()
	warm, byText := calls[:0:0], calls[:0:0]
	missing := make(map[*redis.Client][]*Call)
	for _, c := range calls {
		if !c.cold() && r.replicas == 0 {
			warm = append(warm, c)
			continue
		}
		node, err := owner(ctx, r.client, c.firstKey())
		switch {
		case err != nil:
			c.lost(ctx, err)
		case node == nil || c.byText():
			_ = pipe.Process(ctx, c.prepare(ctx, true))
			byText = append(byText, c)
		default:
			missing[node] = append(missing[node], c)
		}
	}
	r.sendWarm(ctx, pipe, calls, warm)
	r.confirm(byText, 0, nil)
	r.sendToEach(ctx, missing)
}

// sendToEach sends each node its calls, to all nodes abreast: a node that is slow, or whose replicas are, holds up the
// calls of no other.
func (r *round) sendToEach(ctx context.Context, calls map[*redis.Client][]*Call) {
	nodes := slices.Collect(maps.Keys(calls))
	acked, errs := make([]int, len(nodes)), make([]error, len(nodes))
	send.Abreast(len(nodes), func(i int) {
		errs[i] = errExited // unless loadAndSend returns
		acked[i], errs[i] = loadAndSend(ctx, r.client, nodes[i], calls[nodes[i]], r.replicas, r.timeout)
	})
	for i, node := range nodes {
		for _, c := range calls[node] {
			if errs[i] == errExited {
				c.cmd.SetErr(errExited)
			}
		}
		r.confirm(calls[node], acked[i], errs[i])
	}
}

// confirm records how many replicas have the writes of calls, unless none of the calls has run: then the number says
// nothing.
func (r *round) confirm(calls []*Call, acked int, err error) {
	if slices.ContainsFunc(calls, (*Call).mayHaveRun) {
		r.acked, r.waitErr = min(r.acked, acked), cmp.Or(r.waitErr, err)
	}
}

// mayHaveRun reports whether the last attempt may have run the script.
func (c *Call) mayHaveRun() bool {
	err := c.cmd.Err()
	return err == nil || err == redis.Nil || c.cmd.program.answered || classify(&c.cmd, err).Outcome != ErrNotExecuted
}

// sendWarm sends what the pipeline has and the warm calls. Then it sends each call by itself that was a row of a
// command which the server refused.
func (r *round) sendWarm(ctx context.Context, pipe redis.Pipeliner, calls, warm []*Call) {
	for _, c := range warm {
		c.precede(ctx, pipe)
	}
	all := units(warm, r.byTag, r.ordered)
	for _, u := range all {
		u.queue(ctx, pipe)
	}
	_, err := pipe.Exec(ctx)
	blame(calls, err)
	pipe = r.client.Pipeline()
	var alone []*Call
	for _, u := range all {
		if u.cmd != nil {
			blameOne(u.cmd, err)
			r.crossSlot = r.crossSlot || redis.HasErrorPrefix(u.cmd.Err(), "CROSSSLOT")
		}
		for _, c := range u.deliver() {
			alone = append(alone, c)
			_ = pipe.Process(ctx, c.prepare(ctx, false))
		}
	}
	if len(alone) > 0 {
		_, err = pipe.Exec(ctx)
		blame(alone, err)
	}
}

// blame sets the error of a pipeline on the commands that go-redis leaves without one when the server refuses the
// connection.
func blame(calls []*Call, err error) {
	for _, c := range calls {
		blameOne(&c.cmd, err)
	}
}

func blameOne(cmd *command, err error) {
	if err != nil && !cmd.program.sent && cmd.Err() == nil {
		cmd.SetErr(fmt.Errorf("connect: %w", err))
	}
}
