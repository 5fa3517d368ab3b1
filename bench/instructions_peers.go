package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// countedPeers are the plain commands and the peers, as far as their calls can be made one by one.
func countedPeers() []counted {
	all := []counted{
		{name: "raw: PING", open: countCommands(nil, func(p redis.Pipeliner, _ string, s *scene) { p.Ping(s.ctx) })},
		{name: "raw: SET NX + DEL", open: countPair(rawPair)},
		{name: "redislock: obtain + release", open: countPair(redislockPair)},
		{name: "redsync: lock + unlock", open: countPair(redsyncPair)},
		{name: "rueidislock: lock + unlock", open: countRueidis},
		{name: "raw: LPOP", open: countCommands(pushOne, func(p redis.Pipeliner, _ string, s *scene) {
			p.LPop(s.ctx, "counted:r")
		})},
		{name: "raw: ZREM + HDEL", open: countCommands(takenOne, func(p redis.Pipeliner, tag string, s *scene) {
			p.ZRem(s.ctx, "counted:l", tag)
			p.HDel(s.ctx, "counted:b", tag)
		})},
		{name: "raw: LPOP + HMGET + ZADD", open: countCommands(pushOne, func(p redis.Pipeliner, tag string, s *scene) {
			p.LPop(s.ctx, "counted:r")
			p.HMGet(s.ctx, "counted:b", tag)
			p.ZAdd(s.ctx, "counted:l", redis.Z{Score: 1, Member: tag})
		})},
		{name: "raw: PUBLISH to a subscriber", open: countPublish},
		{name: "raw: RPUSH for a BLPOP", open: countBLPop},
		{name: fmt.Sprintf("asynq: enqueue %d B", payload), open: countEnqueue},
		{name: "asynq: dequeue + done", calls: 500, open: countAsynq},
		{name: "asynq: forward of a due task", calls: 500, open: countForward},
	}
	for _, n := range []int{1, batched, 100} {
		all = append(all, counted{name: fmt.Sprintf("raw: HSET + RPUSH %d B", payload) + of(n),
			open: func(s *scene) (operation, error) {
				return operation{run: func(tag string) error { return rawPush(s.ctx, s.c, tag, n) }}, nil
			}})
	}
	for _, p := range outside {
		_, err := p.find()
		for _, n := range []int{1, batched} {
			row := counted{name: fmt.Sprintf("%s: push %d B", p.name, payload) + of(n), open: countProgram(p, n)}
			if err != nil {
				row.absent = err.Error()
			}
			all = append(all, row)
		}
	}
	return all
}

// peerVersions are those of the modules, and of the programs that are found.
func peerVersions() map[string]string {
	versions := moduleVersions()
	for _, p := range outside {
		if version, err := p.find(); err == nil {
			versions[p.name] = version
		}
	}
	return versions
}

// entrant is the bench of an entrant of the other measure, on the counted server.
func (s *scene) entrant() *bench {
	b := &bench{ctx: s.ctx, url: s.counter.url, space: "counted"}
	s.closers = append(s.closers, b.end)
	return b
}

// countProgram has the program push one batch a call: a slot without length ends with its first batch.
func countProgram(p program, n int) func(*scene) (operation, error) {
	return func(s *scene) (operation, error) {
		push, err := p.push(n)(s.entrant())
		return operation{run: func(string) error {
			_, err := push(time.Microsecond)
			return err
		}}, err
	}
}

// countRueidis makes pairs whose release goes on behind the call: that of the last pair of a batch may fall into the
// next one.
func countRueidis(s *scene) (operation, error) {
	p, err := s.entrant().rueidisPair()
	return operation{run: func(tag string) error { return p(s.ctx, tag) }}, err
}

// countForward has a server of asynq whose processor is stopped move all tasks, and looks ten times a second whether
// it has. Its forwarder begins after a second, when all are due.
func countForward(s *scene) (operation, error) {
	client, moved, b := asynq.NewClientFromRedisClient(s.c), false, s.entrant()
	schedule := "asynq:{" + b.space + "}:scheduled"
	return operation{
		prepare: func(string) error { return enqueue(s.ctx, client, b.space, 1, asynq.ProcessIn(time.Second/2)) },
		run: func(string) error {
			if moved {
				return nil // the first call has moved all
			}
			moved = true
			server, err := b.asynqServer(s.client(workers), asynq.Config{DelayedTaskCheckInterval: time.Second}, nil)
			if err != nil {
				return err
			}
			server.Stop()
			for s.c.ZCard(s.ctx, schedule).Val() > 0 && s.ctx.Err() == nil {
				time.Sleep(100 * time.Millisecond)
			}
			return s.ctx.Err()
		}}, nil
}

// countCommands sends plain commands in one pipeline.
func countCommands(prepare, run func(p redis.Pipeliner, tag string, s *scene)) func(*scene) (operation, error) {
	send := func(s *scene, fill func(redis.Pipeliner, string, *scene)) func(string) error {
		if fill == nil {
			return nil
		}
		return func(tag string) error {
			_, err := s.c.Pipelined(s.ctx, func(p redis.Pipeliner) error {
				fill(p, tag, s)
				return nil
			})
			return err
		}
	}
	return func(s *scene) (operation, error) {
		return operation{prepare: send(s, prepare), run: send(s, run)}, nil
	}
}

func pushOne(p redis.Pipeliner, tag string, s *scene) {
	p.HSet(s.ctx, "counted:b", tag, make([]byte, payload))
	p.RPush(s.ctx, "counted:r", tag)
}

func takenOne(p redis.Pipeliner, tag string, s *scene) {
	p.HSet(s.ctx, "counted:b", tag, make([]byte, payload))
	p.ZAdd(s.ctx, "counted:l", redis.Z{Score: 1, Member: tag})
}

func countPublish(s *scene) (operation, error) {
	h := s.hearer()
	body := make([]byte, 32)
	return operation{run: func(string) error {
		h.read()
		return s.c.Publish(s.ctx, "counted", body).Err()
	}}, h.hear("counted")
}

// countBLPop hands a token to a connection that blocks, and takes it from there: the least of a hand-over.
func countBLPop(s *scene) (operation, error) {
	blocked, got := s.client(2*batches*countedCalls), make(map[string]chan error)
	return operation{
		prepare: func(tag string) error {
			done := make(chan error, 1)
			got[tag] = done
			go func() { done <- blocked.BLPop(s.ctx, 0, tag).Err() }()
			for {
				info, err := (&bench{ctx: s.ctx, probe: s.c}).info("clients")
				if err != nil || info["blocked_clients"] == fmt.Sprint(len(got)) {
					return err
				}
			}
		},
		run: func(tag string) error {
			if err := s.c.RPush(s.ctx, tag, "token").Err(); err != nil {
				return err
			}
			return <-got[tag]
		},
	}, nil
}

func countEnqueue(s *scene) (operation, error) {
	client := asynq.NewClientFromRedisClient(s.c)
	return operation{run: func(string) error { return enqueue(s.ctx, client, "counted", 1) }}, nil
}

// countAsynq runs all tasks on one server of asynq, from its start to its end: a task's share of what a server does
// beside its tasks is in the figure.
func countAsynq(s *scene) (operation, error) {
	client, pushed := asynq.NewClientFromRedisClient(s.c), 0
	run := func(string) error {
		if pushed == 0 {
			return nil // the first call has run all
		}
		b := &bench{ctx: s.ctx, space: "counted"}
		done, all := new(atomic.Int64), make(chan struct{})
		server, err := b.startAsynq(s.client(workers), asynq.Config{}, func(context.Context, *asynq.Task) error {
			if done.Add(1) == int64(pushed) {
				close(all)
			}
			return nil
		})
		if err != nil {
			return err
		}
		select {
		case <-all:
		case <-s.ctx.Done():
		}
		server.Shutdown()
		pushed = 0
		return s.ctx.Err()
	}
	return operation{run: run, prepare: func(string) error {
		pushed++
		return enqueue(s.ctx, client, "counted", 1)
	}}, nil
}
