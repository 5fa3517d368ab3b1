package redisinaction

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/compat/redisinaction/internal/script"
	"github.com/luatomic/luatomic/lua"
)

// Task is a call of a function by name, now or later.
type Task struct {
	Name string
	// Args become a JSON array by encoding/json. A nil of any type becomes an empty array. A json.RawMessage is parsed
	// and written in Python's form. A text that is not UTF-8 is an ErrArgs.
	Args any
	// Delay is the time until the task is due; 0 and less adds it to its queue immediately.
	Delay time.Duration
}

// Executed is the result of ExecuteAll.
type Executed struct {
	// IDs are the ids of the tasks, in their order.
	IDs []string
	// Ready and Scheduled count the tasks added to the queue and to delayed:.
	Ready, Scheduled int
	// Now is the server's time.
	Now time.Time
}

// ExecuteLater adds one task and returns its id. See ExecuteAll.
func (c *Client) ExecuteLater(ctx context.Context, queue, name string, args any, delay time.Duration) (string, error) {
	out, err := c.ExecuteAll(ctx, queue, Task{name, args, delay})
	if err != nil {
		return "", err
	}
	return out.IDs[0], nil
}

// ExecuteAll adds tasks, all of them or none: those with a delay to delayed:, scored by the server's clock, the
// others to the end of the queue. Tasks of the same delay are due in their order. A retry after a lost reply does not
// add them twice.
//
// More than MaxBatch tasks or 1 MiB are a lua.ErrTooLarge. Bad input is an ErrArgs or a lua.ErrBadName, before anything
// is sent.
//
// Keys: delayed:, queue:<queue>, sent:<id of the first>. Cost: O(log n) for each delayed
// task, O(1) for each other.
func (c *Client) ExecuteAll(ctx context.Context, queue string, tasks ...Task) (Executed, error) {
	if len(tasks) == 0 {
		return Executed{}, nil
	}
	out := Executed{IDs: make([]string, len(tasks))}
	p := script.ExecuteLaterParams{Delayed: c.delayed(), Queue: c.queue(queue), Keep: receiptLife,
		Items: make([]script.ExecuteLaterItem, len(tasks))}
	if err := checkName("queue", queue); err != nil {
		return Executed{}, executeError(queue, err)
	}
	if len(tasks) > MaxBatch {
		return Executed{}, executeError(queue, &lua.SizeError{What: "tasks", N: len(tasks), Max: MaxBatch,
			Unit: "items"})
	}
	for i := range tasks {
		var err error
		if out.IDs[i], p.Items[i], err = tasks[i].encode(queue); err != nil {
			return Executed{}, executeError(queue, fmt.Errorf("task %d: %w", i, err))
		}
	}
	p.Receipt = c.receipt(out.IDs[0])
	r, err := script.ExecuteLater(ctx, c.redis, p)
	if err != nil {
		return Executed{}, executeError(queue, err)
	}
	out.Ready, out.Scheduled, out.Now = int(r.Ready), int(r.Scheduled), time.UnixMicro(r.Now)
	return out, nil
}

// receiptLife is longer than the time for which any call is retried.
const receiptLife = time.Minute

func executeError(queue string, err error) error {
	return fmt.Errorf("redisinaction: execute later on %q: %w", queue, err)
}

// encode returns the item of the task, with a new id.
func (t *Task) encode(queue string) (id string, item script.ExecuteLaterItem, err error) {
	if err := checkName("name", t.Name); err != nil {
		return "", item, err
	}
	u, err := uuid.NewRandom()
	if err != nil {
		return "", item, fmt.Errorf("no random bytes for an id: %w", err)
	}
	id = u.String()
	item.Body, err = encodeItem(id, queue, t.Name, t.Args)
	item.Delay = t.Delay.Microseconds()
	return id, item, err
}
