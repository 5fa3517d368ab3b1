package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/luatomic/luatomic/internal/keys"
)

// weighted is a queue of a consumer with the weight that its argument gives, or 0.
type weighted struct {
	name   string
	weight int
}

// weightedQueues reads queues as Sidekiq's own -q does: NAME, or NAME,WEIGHT.
func weightedQueues(args []string) ([]weighted, error) {
	if len(args) == 0 {
		return nil, usagef("the queue is missing; name at least one queue")
	}
	var out []weighted
	for _, arg := range args {
		q, err := weightedQueue(arg)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o weighted) bool { return o.name == q.name }) {
			return nil, usagef("queue %q is named twice; give it a weight, such as %s,2", q.name, q.name)
		}
		out = append(out, q)
	}
	return out, nil
}

// weightedQueue reads one of them. A comma that no number follows is part of the name.
func weightedQueue(arg string) (weighted, error) {
	q := weighted{name: arg}
	if i := strings.LastIndexByte(arg, ','); i >= 0 {
		if n, err := strconv.Atoi(arg[i+1:]); err == nil {
			if n < 1 || n > 1000 {
				return q, usagef("%q: a weight is a whole number from 1 to 1000, such as mail,3", arg)
			}
			q = weighted{arg[:i], n}
		}
	}
	return q, keys.CheckName("queue", q.name)
}
