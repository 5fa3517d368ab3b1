// Package canary plays a scene of jobs, locks and calls whose contents hold a secret word, for tests of what observes
// them: the word must never come out.
package canary

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
	"github.com/luatomic/luatomic/rpc"
)

// Word is part of each body, header, key, unique name, note and token of the scene, those of refused calls too.
const Word = "CANARY"

// Scene is how the primitives of the scene are observed. Each field can be nil.
type Scene struct {
	Job    func(queue.Event)
	Lock   func(lock.Event)
	Error  func(error)
	Served func(context.Context, rpc.CallInfo, func(context.Context) error) error
	Called func(context.Context, *rpc.Outgoing, func(context.Context) error) error
	Push   func(context.Context, *queue.Queue, ...queue.Job) (queue.Pushed, error)
	Handle func(*queue.Queue, queue.Handler) queue.Handler
	Hold   func(context.Context, *lock.Locker, string, func(context.Context, *lock.Lease) error) error
}

// Played is what the scene has made.
type Played struct {
	Queue *queue.Queue
	Bus   *rpc.Bus
	// Secrets must not come out.
	Secrets []string
}

// Play runs the scene: a job that is done, one that is retried and dies, one that meets a held lock; a lock that is
// waited for; a call that succeeds and one that fails.
func Play(t *testing.T, c *redis.Client, name string, s Scene) Played {
	t.Helper()
	p := Played{Secrets: []string{Word}}
	p.locks(t, c, name, s)
	p.jobs(t, c, name, s)
	p.calls(t, c, name, s)
	return p
}

func (p *Played) locks(t *testing.T, c *redis.Client, name string, s Scene) {
	locks := lock.New(c, &lock.Options{
		Prefix: name, Note: "note " + Word, Observe: s.Lock, Claim: time.Minute,
	})
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	hold := s.Hold
	if hold == nil {
		hold = func(ctx context.Context, l *lock.Locker, name string,
			f func(context.Context, *lock.Lease) error) error {
			return l.Do(ctx, name, f)
		}
	}
	held, err := locks.Try(t.Context(), "invoice:42")
	require.NoError(t, err)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		err := hold(t.Context(), locks, "invoice:42", func(_ context.Context, l *lock.Lease) error {
			p.Secrets = append(p.Secrets, l.Token())
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	lab.WaitFor(t, locks, "invoice:42", 1)
	require.NoError(t, held.Release(t.Context()))
	waiting.Wait()
	p.Secrets = append(p.Secrets, held.Token())
	lost, err := locks.Try(t.Context(), "lost")
	require.NoError(t, err)
	kept := lost.Keep(t.Context())
	_, err = locks.ForceRelease(t.Context(), "lost", 0)
	require.NoError(t, err)
	<-kept.Done()
}

func (p *Played) jobs(t *testing.T, c *redis.Client, name string, s Scene) {
	q, err := queue.New(c, "mail"+name, &queue.Options{Prefix: name, MaxFailures: 2, Observe: s.Job})
	require.NoError(t, err)
	p.Queue = q
	push := s.Push
	if push == nil {
		push = func(ctx context.Context, q *queue.Queue, jobs ...queue.Job) (queue.Pushed, error) {
			return q.Push(ctx, jobs...)
		}
	}
	secret := func(id string) queue.Job {
		return queue.Job{
			ID: id, Body: []byte("body " + Word), Unique: Word + id, Kind: "mail",
			Headers: map[string]string{"secret": Word},
		}
	}
	_, err = push(t.Context(), q, secret("done"), secret("dies"), secret("meets"))
	require.NoError(t, err)
	_, err = q.Push(t.Context(), queue.Job{Unique: Word + "{"})
	s.refused(t, err, lua.ErrBadName)
	_, err = q.PushOnce(t.Context(), Word+"\n", queue.Job{})
	s.refused(t, err, lua.ErrBadName)
	require.NoError(t, c.HSet(t.Context(), name+"{"+q.Name()+"}:i:"+Word, "f", "v").Err())
	_, err = q.PushOnce(t.Context(), Word, queue.Job{})
	s.refused(t, err, lua.ErrWrongType)
	handle := func(_ context.Context, d *queue.Delivery) error {
		switch d.ID {
		case "dies":
			return errors.New("smtp: 421")
		case "meets":
			held := &lock.HeldError{Name: "invoice:42", Holder: Word, Remaining: time.Second}
			return queue.Discard(fmt.Errorf("charge: %w", held))
		}
		return nil
	}
	if s.Handle != nil {
		handle = s.Handle(q, handle)
	}
	_, err = q.Consume(t.Context(), &queue.ConsumeOptions{
		Drain: true, OnError: s.Error, Backoff: func(int) time.Duration { return 0 },
	}, handle)
	require.NoError(t, err)
}

var lookUp = rpc.NewMethod[string, string]("look_up")

func (p *Played) calls(t *testing.T, c *redis.Client, name string, s Scene) {
	opts := &rpc.Options{OnError: s.Error}
	if s.Served != nil {
		opts.Wrap = append(opts.Wrap, s.Served)
	}
	if s.Called != nil {
		opts.WrapCall = append(opts.WrapCall, s.Called)
	}
	p.Bus = lab.Serving(t, lookUp, c, name, opts, func(_ context.Context, in string) (string, error) {
		if in == "missing "+Word {
			return "", &rpc.RemoteError{Code: "not_found", Message: "no such item", Details: Word}
		}
		return "found " + Word, nil
	})
	with := &rpc.CallOptions{Key: Word, Headers: map[string]string{"secret": Word}}
	_, err := lookUp.Call(t.Context(), p.Bus, "item "+Word, with)
	require.NoError(t, err)
	_, err = lookUp.Call(t.Context(), p.Bus, "missing "+Word, nil)
	require.Error(t, err)
	_, err = lookUp.Call(t.Context(), p.Bus, "item", &rpc.CallOptions{Key: Word + "}"})
	s.refused(t, err, lua.ErrBadName)
	records, err := c.Keys(t.Context(), "*"+name+"*:r:*"+Word+"*").Result()
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.NoError(t, c.Del(t.Context(), records[0]).Err())
	require.NoError(t, c.HSet(t.Context(), records[0], "f", "v").Err())
	_, err = lookUp.Call(t.Context(), p.Bus, "item", with)
	s.refused(t, err, lua.ErrWrongType)
}

// refused holds the error of a call that was not possible, whose text is shown by what the program does with it.
func (s *Scene) refused(t *testing.T, err, want error) {
	t.Helper()
	require.ErrorIs(t, err, want)
	require.NotContains(t, err.Error(), Word)
	if s.Error != nil {
		s.Error(err)
	}
}
