package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/luatomic/luatomic/rpc"
)

type callStep struct {
	Step          int     `json:"step"`
	Name          string  `json:"name"`
	Result        int     `json:"result"`
	CallMS        float64 `json:"call_ms"`
	NoResponder   bool    `json:"no_responder"`
	NoResponderMS float64 `json:"no_responder_ms"`
}

type countRequest struct {
	Queue string `json:"queue"`
}

type countResult struct {
	Finished int `json:"finished"`
}

func (d *demo) stepCall() error {
	d.head(5, "A call to another process")
	ctx, stop := context.WithCancel(d.ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	join := func(node string) (*rpc.Bus, error) {
		bus, err := rpc.New(d.client, "demo", &rpc.Options{Prefix: d.prefix, Node: node})
		if err == nil {
			running.Go(func() { _ = bus.Run(ctx) }) // its error is the end of ctx
		}
		return bus, err
	}
	count := rpc.NewMethod[countRequest, countResult]("jobs.count")
	node, err := join("node")
	if err != nil {
		return err
	}
	if err := count.Serve(node, d.countFinished, nil); err != nil {
		return err
	}
	caller, err := join("caller")
	if err != nil {
		return err
	}
	return d.call(ctx, count, node, caller)
}

// countFinished is the handler of jobs.count.
func (d *demo) countFinished(context.Context, countRequest) (countResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return countResult{Finished: len(d.finished)}, nil
}

func (d *demo) call(ctx context.Context, count rpc.Method[countRequest, countResult], node, caller *rpc.Bus) error {
	if err := errors.Join(node.Ready(ctx), caller.Ready(ctx)); err != nil {
		return err
	}
	out := callStep{Step: 5, Name: "call"}
	start := time.Now()
	res, err := count.Call(ctx, caller, countRequest{Queue: d.queue.Name()}, nil)
	if err != nil {
		return err
	}
	out.Result, out.CallMS = res.Finished, millis(time.Since(start))
	if out.Result != len(d.body) {
		return broken("the call counted %d jobs, and %d were finished", out.Result, len(d.body))
	}
	d.say("A node serves %q; another bus calls it and gets %d after %.3f ms. The script that sends the", count.Name(),
		out.Result, out.CallMS)
	d.say("request chooses a live node and stores the request, so a reply is neither lost nor accepted twice.")
	start = time.Now()
	nobody := rpc.NewMethod[countRequest, countResult]("jobs.nobody")
	_, err = nobody.Call(ctx, caller, countRequest{}, nil)
	out.NoResponderMS = millis(time.Since(start))
	if out.NoResponder = errors.Is(err, rpc.ErrNoResponders); !out.NoResponder {
		return errors.Join(broken("a call without a node was not refused"), err)
	}
	d.say("No node serves %q: the caller knows after %.3f ms, without a time-out.", nobody.Name(), out.NoResponderMS)
	return d.s.emit(out)
}

type totalsStep struct {
	Step         int    `json:"step"`
	Name         string `json:"name"`
	Pushed       int    `json:"pushed"`
	Done         int    `json:"done"`
	Lost         int    `json:"lost"`
	Twice        int    `json:"twice"`
	KeysUsed     int    `json:"keys_used"`
	KeysExpiring int    `json:"keys_expiring"`
	KeysLeft     int    `json:"keys_left"`
}

func (d *demo) stepTotals() error {
	d.head(6, "Totals")
	out := totalsStep{Step: 6, Name: "totals", Pushed: len(d.body)}
	for _, n := range d.finished {
		out.Done++
		if n > 1 {
			out.Twice++
		}
	}
	out.Lost = out.Pushed - out.Done
	out.KeysUsed = len(d.keys.all())
	expiring, lasting, err := d.keys.remaining(d.ctx, d.client)
	if err != nil {
		return err
	}
	out.KeysExpiring = expiring
	if lasting > 0 {
		return broken("%d keys are left that do not expire", lasting)
	}
	if err := d.keys.remove(d.client); err != nil {
		return err
	}
	if expiring, lasting, err = d.keys.remaining(d.ctx, d.client); err != nil {
		return err
	}
	out.KeysLeft = expiring + lasting
	d.say("Pushed %d, done %d, lost %d, twice %d.", out.Pushed, out.Done, out.Lost, out.Twice)
	d.say("The scripts used %d keys. Those of the queue ended with its last job; %d others, such as receipts, would",
		out.KeysUsed, out.KeysExpiring)
	d.say("have expired by themselves. They are deleted now by name, so %d are left.", out.KeysLeft)
	return d.s.emit(out)
}
