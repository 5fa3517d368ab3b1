package sidekiq_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func TestEntriesOfAQueueAndASet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	wrapped := `{"class":"Wrapper","wrapped":"GreetJob","queue":"a","jid":"3","args":[],"retry_count":2,` +
		`"error_class":"Timeout::Error","error_message":"late","enqueued_at":1795230010.5}`
	for _, payload := range []string{withJID("1", ""), "broken", wrapped} {
		require.NoError(t, f.client.LPush(f.ctx, f.key("queue:a"), payload).Err())
	}
	all, err := f.d.QueueEntries(f.ctx, "a", 0, 10)
	require.NoError(t, err)
	require.Equal(t, []sidekiq.Entry{
		{JID: "1", Class: "W", Queue: "a", Payload: []byte(withJID("1", ""))},
		{Payload: []byte("broken")},
		{JID: "3", Class: "Wrapper", Wrapped: "GreetJob", Queue: "a", Failures: 3, Reason: "Timeout::Error: late",
			At: time.UnixMilli(1795230010500), Payload: []byte(wrapped)},
	}, all)
	for offset, want := range map[int]int{0: 2, 1: 2, 2: 1, 3: 0, 9: 0} {
		some, err := f.d.QueueEntries(f.ctx, "a", offset, 2)
		require.NoError(t, err)
		require.Len(t, some, want, offset)
		for i := range some {
			require.Equal(t, all[offset+i], some[i])
		}
	}

	f.schedule(sidekiq.Retry, 1900000000, withJID("x", ""), withJID("y", ""), withJID("z", ""))
	some, err := f.d.SetEntries(f.ctx, sidekiq.Retry, 1, 1)
	require.NoError(t, err)
	require.Equal(t, []sidekiq.Entry{{JID: "y", Class: "W", Queue: "a", At: time.Unix(1900000001, 0), Score: 1900000001,
		Payload: []byte(withJID("y", ""))}}, some)

	var queued []sidekiq.Entry
	for e, err := range f.d.ScanQueue(f.ctx, "a") {
		require.NoError(t, err)
		queued = append([]sidekiq.Entry{e}, queued...)
	}
	require.Equal(t, all, queued)
	for e, err := range f.d.ScanSet(f.ctx, sidekiq.Retry) {
		require.NoError(t, err)
		if e.JID == "y" {
			require.Equal(t, some[0], e)
			break
		}
	}

	_, err = f.d.SetEntries(f.ctx, "queue:a", 0, 1)
	require.ErrorIs(t, err, sidekiq.ErrSet)
	for _, err := range f.d.ScanSet(f.ctx, "queue:a") {
		require.ErrorIs(t, err, sidekiq.ErrSet)
	}
	for _, page := range [][2]int{{-1, 1}, {0, 0}} {
		_, err = f.d.SetEntries(f.ctx, sidekiq.Dead, page[0], page[1])
		require.ErrorIs(t, err, lua.ErrOutOfRange)
		_, err = f.d.QueueEntries(f.ctx, "a", page[0], page[1])
		require.ErrorIs(t, err, lua.ErrOutOfRange)
	}
}

// A job goes from each set to its queue, whenever it is due, with its bytes but for enqueued_at; others stay.
func TestRequeue(t *testing.T) {
	t.Parallel()
	for set, score := range map[sidekiq.Set]float64{sidekiq.Schedule: 4e9, sidekiq.Retry: 4e9, sidekiq.Dead: 1} {
		f := newFleet(t, sidekiq.Options{})
		f.schedule(set, score, withJID("x", `,"retry_count":3,"enqueued_at":1.5`), withJID("y", ""))
		ref := sidekiq.Ref{Set: set, JID: "x"}
		ok, err := f.d.Requeue(f.ctx, ref)
		require.NoError(t, err)
		require.True(t, ok)
		queued := f.queue("a")
		require.Len(t, queued, 1)
		requireStamped(t, withJID("x", `,"retry_count":3,"enqueued_at":%`), `\d{10}\.\d+`, queued[0])
		require.Equal(t, []string{"a"}, f.client.SMembers(f.ctx, f.key("queues")).Val())
		left := f.set(string(set))
		require.Len(t, left, 1)
		require.Equal(t, withJID("y", ""), left[0].Member)
		ok, err = f.d.Requeue(f.ctx, ref)
		require.NoError(t, err)
		require.False(t, ok, "it is gone")

		// What cannot be moved stays.
		require.NoError(t, f.client.Set(f.ctx, f.key("queue:a"), "no list", 0).Err())
		ok, err = f.d.Requeue(f.ctx, sidekiq.Ref{Set: set, JID: "y"})
		require.ErrorIs(t, err, sidekiq.ErrQueueRefused)
		require.False(t, ok)
		f.schedule(set, 4e9, `{"jid":"n"}`)
		_, err = f.d.Requeue(f.ctx, sidekiq.Ref{Set: set, JID: "n"})
		require.ErrorIs(t, err, sidekiq.ErrPayload)
		require.Len(t, f.set(string(set)), 2)
	}
}

// after calls do after each command of that name.
type after struct {
	name string
	do   func()
}

func (h after) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h after) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == h.name {
			h.do()
		}
		return err
	}
}

func (h after) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A job that stays where it is is found while workers take and clients push.
func TestJobsAreFoundWhileOthersComeAndGo(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	var payloads []any
	for i := range 1000 {
		payloads = append(payloads, withJID(fmt.Sprintf("job-%04d", i), ""))
		f.schedule(sidekiq.Retry, float64(i), withJID(fmt.Sprintf("job-%04d", i), ""))
	}
	require.NoError(t, f.client.LPush(f.ctx, f.key("queue:a"), payloads...).Err())
	other := redis.NewClient(f.client.Options())
	t.Cleanup(func() { _ = other.Close() })
	pushed := 0
	other.AddHook(after{"lrange", func() {
		require.NoError(t, f.client.RPopCount(f.ctx, f.key("queue:a"), 20).Err())
		for range 30 {
			pushed++
			require.NoError(t, f.client.LPush(f.ctx, f.key("queue:a"), withJID(fmt.Sprint("new", pushed), "")).Err())
		}
	}})
	other.AddHook(after{"zscan", func() { require.NoError(t, f.client.ZPopMin(f.ctx, f.key("retry"), 100).Err()) }})
	busy := f.through(other, sidekiq.Options{})
	for _, jid := range []string{"job-0210", "job-0990", "job-0500"} {
		ok, err := busy.Drop(f.ctx, "a", jid)
		require.NoError(t, err)
		require.True(t, ok, jid)
	}
	var left []string
	for e, err := range busy.ScanSet(f.ctx, sidekiq.Retry) {
		require.NoError(t, err)
		left = append(left, e.JID)
	}
	for _, m := range f.set("retry") {
		require.Contains(t, left, m.Member.(string)[len(m.Member.(string))-len(`job-0000"}`):len(m.Member.(string))-2])
	}
}

// Only the job of that id leaves the queue, wherever it is.
func TestDrop(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	var payloads []any
	for i := range 450 { // more than one step
		payloads = append(payloads, withJID(fmt.Sprint("j", i), `,"note":"j17"`))
	}
	require.NoError(t, f.client.LPush(f.ctx, f.key("queue:a"), payloads...).Err())
	for _, jid := range []string{"j17", "j440"} {
		for _, want := range []bool{true, false} {
			ok, err := f.d.Drop(f.ctx, "a", jid)
			require.NoError(t, err)
			require.Equal(t, want, ok, jid)
		}
	}
	left := f.queue("a")
	require.Len(t, left, 448)
	require.NotContains(t, strings.Join(left, ""), `"jid":"j17"`)
	_, err := f.d.Drop(f.ctx, "a", "")
	require.ErrorIs(t, err, sidekiq.ErrJID)
}

// A Drop without a reply is an error: that of a repeat would say that the job had gone before.
func TestADropWithoutAReplyIsAnError(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	require.NoError(t, f.client.LPush(f.ctx, f.key("queue:a"), withJID("x", "")).Err())
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	lossy := redis.NewClient(opts)
	t.Cleanup(func() { _ = lossy.Close() })
	proxy.Drop(1, luatomictest.Command("LREM"))
	d := f.through(lossy, sidekiq.Options{})
	ok, err := d.Drop(f.ctx, "a", "x")
	require.Error(t, err)
	require.False(t, ok)
	require.Empty(t, f.queue("a"))
	ok, err = d.Drop(f.ctx, "a", "x")
	require.NoError(t, err)
	require.False(t, ok, "a repeat is safe")
}
