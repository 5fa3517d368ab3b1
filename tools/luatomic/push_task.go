package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/luatomic/luatomic/compat/redisinaction"
)

// checkDialect refuses what a dialect cannot honour.
func (p *pushCmd) checkDialect(s *session) error {
	if p.dialect == "" {
		return nil
	}
	foreign := map[string]bool{"tag": s.tag != ""}
	if p.dialect == redisInAction {
		foreign["raw"], foreign["at"] = p.raw, p.at != ""
		return foreignFlags(p.dialect, foreign)
	}
	if err := foreignFlags(p.dialect, foreign); err != nil {
		return err
	}
	return s.checkNamespace()
}

// taskForm makes a task of Redis in Action of a line.
type taskForm struct {
	app   *redisinaction.Client
	delay time.Duration // of the lines without one of their own
}

func (f *taskForm) parse(line []byte) (redisinaction.Task, error) {
	task := redisinaction.Task{Delay: f.delay}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil || fields == nil {
		return task, badTask(err)
	}
	if err := checkOnce(line, len(fields)); err != nil {
		return task, err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var err error
		switch value := fields[name]; name {
		case "name":
			if json.Unmarshal(value, &task.Name) != nil || task.Name == "" {
				return task, errors.New(`"name" is not a string, or is empty`)
			}
		case "args":
			if value[0] != '[' {
				return task, errors.New(`"args" is not an array; the worker calls the function with its elements`)
			}
			task.Args = value
		case "delay":
			task.Delay, err = parseDuration(name, value)
		default:
			return task, fmt.Errorf("unknown field %q; the fields are name, args, delay", name)
		}
		if err != nil {
			return task, err
		}
	}
	if task.Name == "" {
		return task, errors.New(`"name" is missing; write {"name": "...", "args": [...]}`)
	}
	if n := f.size(&task); n > batchRoom {
		return task, fmt.Errorf("the task can have %d bytes, at most %d are possible; "+
			"store the data elsewhere and push its place", n, batchRoom)
	}
	// With a context that is over all is checked, and nothing is sent.
	over, end := context.WithCancel(context.Background())
	end()
	if _, err := f.app.ExecuteLater(over, "any", task.Name, task.Args, task.Delay); !errors.Is(err, context.Canceled) {
		return task, afterIndex(err, "task 0: ")
	}
	return task, nil
}

func badTask(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("broken JSON at byte %d", syntax.Offset)
	}
	return errors.New(`not a JSON object; write {"name": "...", "args": [...]}`)
}

// size is the most that the item can have: Python writes what is not ASCII as escapes,
// a space after each comma and colon, and floats without an exponent.
func (*taskForm) size(task *redisinaction.Task) int {
	args, _ := task.Args.(json.RawMessage)
	n := 256 + 6*len(task.Name) + grown(args) + bytes.Count(args, []byte{','}) + bytes.Count(args, []byte{':'})
	for _, b := range args {
		if b >= 0x7f {
			n += 5
		}
	}
	return n
}

// A line of blanks is no task.
func (*taskForm) blanks() bool { return false }

// executeAll pushes tasks to the queue.
func executeAll(app *redisinaction.Client, queue string) pusher[redisinaction.Task] {
	return func(ctx context.Context, tasks []redisinaction.Task) (pushed, error) {
		r, err := app.ExecuteAll(ctx, queue, tasks...)
		return pushed{ready: r.Ready, scheduled: r.Scheduled, now: r.Now}, err
	}
}
