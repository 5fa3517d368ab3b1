package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/actionhero"
)

// checkHero refuses what the dialect cannot honour.
func (c *rpcCallCmd) checkHero(s *session) error {
	if c.arity != 0 && c.hero.era != "callback" {
		return usagef("--arity is for --dialect %s --era callback; add both, or leave it out", actionHero)
	}
	return c.hero.check(s, map[string]bool{
		"bus": c.name != defaultBus, "keys": c.keyFile != "", "to": c.to != "", "key": c.key != "",
		"idempotent": c.repeat,
		"all":        c.all, "stream": c.stream,
	})
}

// runHero calls a method of ActionHero's nodes.
func (c *rpcCallCmd) runHero(client redis.UniversalClient) error {
	args, o := heroArgs(c.body), c.hero.options()
	if o.Era == actionhero.Callback {
		if len(args) != c.arity {
			return usagef("%d arguments, but --arity says that %s takes %d; in the era callback a node ends when a "+
				"method "+
				"gets more or fewer than it takes: add --arity %d if it takes these, or pass as many as it takes",
				len(args), c.s.args[0], c.arity, len(args))
		}
		o.Methods = map[string]int{c.s.args[0]: c.arity}
	}
	o.Timeout = c.timeout
	node := newHeroNode(c.s, client, o)
	if c.cast {
		return c.castHero(node, args)
	}
	defer runHeroNode(node)()
	ctx, cancel := context.WithTimeout(c.s.signals.stop, c.timeout)
	defer cancel()
	if node.Ready(ctx) != nil {
		return c.fail(c.notSubscribed())
	}
	if c.gather {
		return c.gatherHero(node, args)
	}
	r, err := node.DoCluster(c.s.signals.stop, c.s.args[0], args, c.connection)
	if err != nil {
		return c.fail(err)
	}
	return c.s.emit(rpcResult{Result: heroValue(r)})
}

func (c *rpcCallCmd) notSubscribed() error {
	if c.s.signals.stop.Err() != nil {
		return errNotSent
	}
	return c.s.notSent(fmt.Sprintf("channel %q could not be subscribed to within %v", c.hero.name(), c.timeout), nil)
}

// castHero sends the call to all nodes, or to the node of the connection, as doCluster does without a callback.
func (c *rpcCallCmd) castHero(node *actionhero.Node, args []any) error {
	ctx, cancel := context.WithTimeout(c.s.signals.stop, c.timeout)
	defer cancel()
	if err := node.Cast(ctx, c.s.args[0], args, c.connection); err != nil {
		return c.fail(err)
	}
	return c.s.emit(castResult{1})
}

// heroArgs are the arguments that the JSON holds.
func heroArgs(body []byte) []any {
	var list []json.RawMessage
	if json.Unmarshal(body, &list) != nil {
		list = []json.RawMessage{body}
	}
	args := make([]any, len(list))
	for i := range list {
		args[i] = list[i]
	}
	return args
}

// heroValue is the answer; nothing is null.
func heroValue(r *actionhero.Response) json.RawMessage {
	if r.Raw == nil {
		return json.RawMessage("null")
	}
	return r.Raw
}

type heroGathered struct {
	Answered int `json:"answered"`
}

func (c *rpcCallCmd) gatherHero(node *actionhero.Node, args []any) error {
	answers, err := node.Gather(c.s.signals.stop, c.s.args[0], args, c.connection, c.timeout)
	if err != nil {
		return c.fail(err)
	}
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		out := gatherPart{Node: label(id), rpcResult: rpcResult{Result: heroValue(answers[id])}}
		if err := c.s.emit(out); err != nil {
			return err
		}
	}
	if err := c.s.emit(heroGathered{len(answers)}); err != nil {
		return err
	}
	if len(answers) == 0 {
		return &exitError{code: exitFailed}
	}
	return nil
}
