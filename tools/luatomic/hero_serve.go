package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic/compat/actionhero"
)

// checkHero refuses what the dialect cannot honour.
func (c *rpcServeCmd) checkHero(s *session) error {
	return c.hero.check(s, map[string]bool{"bus": c.name != defaultBus, "keys": c.keyFile != "", "stream": c.stream})
}

type heroServed struct {
	Handled int64 `json:"handled"`
	Failed  int64 `json:"failed"`
	Dropped int64 `json:"dropped"`
}

// runHero serves a method to ActionHero's nodes.
func (c *rpcServeCmd) runHero(client redis.UniversalClient) error {
	s, method, o := c.s, c.s.args[0], c.hero.options()
	o.Concurrency, o.ServerID = c.concurrency, c.node
	node := newHeroNode(s, client, o)
	var running calls
	if err := node.Handle(method, func(ctx context.Context, r *actionhero.Request) (any, error) {
		defer running.begin()()
		return c.answerHero(ctx, r)
	}); err != nil {
		return err
	}
	if c.connection != "" {
		if err := node.Own(c.connection); err != nil {
			return err
		}
	}
	leave := runHeroNode(node)
	if node.Ready(s.signals.stop) == nil {
		s.note("luatomic: node %s serves %q on channel %q; Ctrl-C ends it", node.ServerID(), method, c.hero.name())
		<-s.signals.stop.Done()
		s.note("luatomic: stopping; running commands may finish within %v; Ctrl-C again kills them", c.grace)
	}
	_ = node.Handle(method, nil)
	if !running.wait(s.signals.hard, c.grace) {
		s.cut.Store(true)
	}
	leave()
	if err := s.emit(heroServed{c.handled.Load(), c.failed.Load(), node.Stats().Shed}); err != nil {
		return err
	}
	return errInterrupted
}

// answerHero runs the command for one call.
func (c *rpcServeCmd) answerHero(ctx context.Context, r *actionhero.Request) (any, error) {
	in, err := json.Marshal(r.Args)
	if err != nil {
		return nil, err
	}
	var text string
	if c.text && len(r.Args) == 1 && json.Unmarshal(r.Args[0], &text) == nil {
		in = r.Args[0] // which runChild unpacks
	}
	var out resultWriter
	env := []string{"LUATOMIC_METHOD=" + r.Method, "LUATOMIC_CALLER=" + r.ServerID,
		"LUATOMIC_CONNECTION=" + r.ConnectionID, "LUATOMIC_ATTEMPT=1"}
	err = c.runChild(ctx, in, &out, env...)
	var result []byte
	if err == nil {
		result, err = c.form(out.text)
	}
	if c.count(err) != nil {
		return nil, fmt.Errorf("the command failed: %w", err)
	}
	return json.RawMessage(result), nil
}

// calls counts what runs. The zero value is ready.
type calls struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to 0 while wait runs
}

func (c *calls) begin() (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.n--; c.n == 0 && c.idle != nil {
			close(c.idle)
			c.idle = nil
		}
	}
}

// wait returns when nothing runs, or after grace, or when ctx ends. It reports whether nothing runs.
func (c *calls) wait(ctx context.Context, grace time.Duration) bool {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return true
	}
	idle := make(chan struct{})
	c.idle = idle
	c.mu.Unlock()
	over := time.NewTimer(grace)
	defer over.Stop()
	select {
	case <-idle:
		return true
	case <-over.C:
	case <-ctx.Done():
	}
	return false
}
