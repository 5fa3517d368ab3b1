// Package scriptcase has a valid call of every script of this module, with what must be stored before it. The sweeps
// over all scripts run them, and the tests of single scripts build on them.
package scriptcase

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	lockscript "github.com/luatomic/luatomic/gen/lock"
	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// QueueStep is one call on a queue. ds are the deliveries of the last takes.
type QueueStep func(ctx context.Context, q *queue.Queue, ds *[]*queue.Delivery) error

func Pushes(jobs ...queue.Job) QueueStep {
	return func(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
		_, err := q.PushOnce(ctx, "first", jobs...)
		return err
	}
}

func Reclaims(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
	_, err := q.Reclaim(ctx)
	return err
}

func Promotes(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
	_, err := q.Promote(ctx)
	return err
}

func Cancels(ids ...string) QueueStep {
	return func(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
		_, err := q.Cancel(ctx, ids...)
		return err
	}
}

func BuriesJobs(ids ...string) QueueStep {
	return func(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
		_, err := q.BuryJobs(ctx, "reason", ids...)
		return err
	}
}

func Requeues(ids ...string) QueueStep {
	return func(ctx context.Context, q *queue.Queue, _ *[]*queue.Delivery) error {
		_, err := q.Requeue(ctx, ids...)
		return err
	}
}

var AllScripts = slices.Concat(RpcScripts, LimitScripts, []*lua.Script{
	&queuescript.PromoteScript,
	&lockscript.AcquireScript, &lockscript.ExtendScript, &lockscript.LeaveScript, &lockscript.ReleaseScript,
	&lockscript.TryScript,
	&lockscript.ForceScript, &lockscript.InfoScript, &lockscript.NoteScript, &lockscript.FenceScript,
	&lockscript.AcquireAllScript,
	&queuescript.AckScript, &queuescript.BuryScript, &queuescript.CancelScript, &queuescript.ControlScript,
	&queuescript.ExtendScript,
	&queuescript.FindScript, &queuescript.MendScript, &queuescript.NackScript,
	&queuescript.PeekScript, &queuescript.PushScript, &queuescript.PushBareScript, &queuescript.PushManyScript,
	&queuescript.PushOneScript, &queuescript.ReclaimScript, &queuescript.ReportScript, &queuescript.RequeueScript,
	&queuescript.RescheduleScript,
	&queuescript.StatsScript, &queuescript.TakeScript, &queuescript.TrimScript,
	&lockscript.SemAcquireScript, &lockscript.SemExtendScript, &lockscript.SemInfoScript,
	&lockscript.SemReleaseScript, &lockscript.SemResizeScript,
})

type Recorder struct {
	Keys   []string
	Cancel func() // stops the runtime's retries
}

func (r *Recorder) DialHook(next redis.DialHook) redis.DialHook { return next }
func (r *Recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (r *Recorder) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		n, err := strconv.Atoi(args[2].(string))
		for _, k := range args[3 : 3+n] {
			if text, ok := k.(*string); ok {
				k = *text
			}
			r.Keys = append(r.Keys, k.(string))
		}
		r.Cancel()
		return errors.Join(err, errors.New("recorded"))
	}
}

// ScriptCall is one call of a script on prepared data, for the tests that put
// every script under the same fault.
type ScriptCall struct {
	Script *lua.Script
	// Run calls the script and returns its reply as text.
	Run func(ctx context.Context, c lua.Client, k string) (string, error)
	// Prepare stores the data for the call; k is the test's tag.
	Prepare func(ctx context.Context, c *redis.Client, k string) error
	// Unread are declared keys that this call does not read.
	Unread []string
}

func None(context.Context, *redis.Client, string) error { return nil }

// ScriptCalls has a call of each script at least.
func ScriptCalls() []ScriptCall {
	return slices.Concat(
		pushCalls(), deliveryCalls(), changeCalls(), reportCalls(), peekCalls(), lockCalls(), SemCalls(), rpcCalls(),
		limitCalls(),
	)
}

// show is a reply as text.
func show(v any, err error) (string, error) { return fmt.Sprintf("%+v", v), err }

// KeysOf returns the keys that a call passes, recorded by a client that sends nothing.
func KeysOf(ctx context.Context, t *testing.T, call ScriptCall, k string) []string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	lua.Direct(c) // the hook ends the context of the call itself
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	rec := &Recorder{Cancel: cancel}
	c.AddHook(rec)
	_, err := call.Run(ctx, c, k)
	require.ErrorIs(t, err, context.Canceled)
	require.NotEmpty(t, rec.Keys)
	return rec.Keys
}
