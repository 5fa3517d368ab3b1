package sidekiq_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
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

	_, err = f.d.SetEntries(f.ctx, "queue:a", 0, 1)
	require.ErrorIs(t, err, sidekiq.ErrSet)
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
