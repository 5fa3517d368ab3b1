// Takes locks with redsync or redislock for the test: one line of JSON in, one line of JSON out. The arguments are the
// library and the address of the server.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type question struct {
	Op    string
	Key   string
	Count string
	TTL   int64
	N     int
}

type answer struct {
	OK       bool   `json:"ok"`
	Overlaps int    `json:"overlaps"`
	Error    string `json:"error,omitempty"`
}

// lock is one library: acquire tries once, or until it has the lock.
type lock interface {
	acquire(ctx context.Context, key string, ttl time.Duration, wait bool) (bool, error)
	release(ctx context.Context) (bool, error)
}

type byRedsync struct {
	rs *redsync.Redsync
	m  *redsync.Mutex
}

func (r *byRedsync) acquire(ctx context.Context, key string, ttl time.Duration, wait bool) (bool, error) {
	tries := 1
	if wait {
		tries = 10_000
	}
	r.m = r.rs.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(tries),
		redsync.WithRetryDelay(5*time.Millisecond))
	err := r.m.LockContext(ctx)
	if _, taken := err.(*redsync.ErrTaken); taken || err == redsync.ErrFailed {
		return false, nil
	}
	return err == nil, err
}

func (r *byRedsync) release(ctx context.Context) (bool, error) {
	ok, err := r.m.UnlockContext(ctx)
	if _, taken := err.(*redsync.ErrTaken); taken || err == redsync.ErrLockAlreadyExpired {
		return false, nil
	}
	return ok, err
}

type byRedislock struct {
	c *redislock.Client
	l *redislock.Lock
}

func (r *byRedislock) acquire(ctx context.Context, key string, ttl time.Duration, wait bool) (ok bool, err error) {
	o := &redislock.Options{RetryStrategy: redislock.NoRetry()}
	if wait {
		o.RetryStrategy = redislock.LinearBackoff(5 * time.Millisecond)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Minute)
		defer cancel()
	}
	r.l, err = r.c.Obtain(ctx, key, ttl, o)
	if err == redislock.ErrNotObtained {
		return false, nil
	}
	return err == nil, err
}

func (r *byRedislock) release(ctx context.Context) (bool, error) {
	err := r.l.Release(ctx)
	if err == redislock.ErrLockNotHeld {
		return false, nil
	}
	return err == nil, err
}

// sections enters and leaves the lock n times and counts how often somebody else was inside.
func sections(ctx context.Context, l lock, c *redis.Client, q question) (a answer, err error) {
	for range q.N {
		ok, err := l.acquire(ctx, q.Key, time.Minute, true)
		if err != nil || !ok {
			return a, fmt.Errorf("not acquired: %w", err)
		}
		if c.Incr(ctx, q.Count+":inside").Val() != 1 {
			a.Overlaps++
		}
		c.Incr(ctx, q.Count)
		c.Decr(ctx, q.Count+":inside")
		if ok, err = l.release(ctx); err != nil || !ok {
			return a, fmt.Errorf("not released: %w", err)
		}
	}
	a.OK = true
	return a, nil
}

func main() {
	c := redis.NewClient(&redis.Options{Addr: os.Args[2]})
	var l lock = &byRedsync{rs: redsync.New(goredis.NewPool(c))}
	if os.Args[1] == "redislock" {
		l = &byRedislock{c: redislock.New(c)}
	}
	ctx := context.Background()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var q question
		var a answer
		err := json.Unmarshal(in.Bytes(), &q)
		switch {
		case err != nil:
		case q.Op == "acquire":
			a.OK, err = l.acquire(ctx, q.Key, time.Duration(q.TTL)*time.Millisecond, false)
		case q.Op == "release":
			a.OK, err = l.release(ctx)
		case q.Op == "sections":
			a, err = sections(ctx, l, c, q)
		}
		if err != nil {
			a.Error = err.Error()
		}
		text, _ := json.Marshal(a)
		fmt.Println(string(text))
	}
}
