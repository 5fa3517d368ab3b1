package sidekiq_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

func withJID(jid, more string) string { return job("a", `,"jid":"`+jid+`"`+more) }

func TestFindRescheduleAndDeleteByJID(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{ExactTimes: true})
	decoy := `{"queue":"a","class":"W","args":["j7"],"jid":"other"}`
	for i := range 1200 { // more than one step of a scan
		f.schedule(sidekiq.Retry, float64(i), withJID(fmt.Sprint("j", i), ""))
	}
	f.schedule(sidekiq.Retry, 7, decoy)
	for _, ref := range []sidekiq.Ref{{Set: sidekiq.Retry, JID: "j7"}, {Set: sidekiq.Retry, JID: "j7", Score: 7}} {
		found, ok, err := f.d.Find(f.ctx, ref)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, sidekiq.Found{Payload: []byte(withJID("j7", "")), Score: 7, At: time.Unix(7, 0)}, found)
	}
	at := time.UnixMicro(1900000000123456)
	score, ok, err := f.d.Reschedule(f.ctx, sidekiq.Ref{Set: sidekiq.Retry, JID: "j7"}, at)
	require.NoError(t, err)
	require.True(t, ok)
	require.InDelta(t, 1900000000.123456, score, 1e-7)
	require.InDelta(t, score, f.client.ZScore(f.ctx, f.key("retry"), withJID("j7", "")).Val(), 1e-9)
	require.EqualValues(t, 1201, f.client.ZCard(f.ctx, f.key("retry")).Val())
	require.EqualValues(t, 7, f.client.ZScore(f.ctx, f.key("retry"), decoy).Val())

	for _, ref := range []sidekiq.Ref{{Set: sidekiq.Retry, JID: "j7", Score: score}, {Set: sidekiq.Retry, JID: "j9"}} {
		ok, err = f.d.Delete(f.ctx, ref)
		require.NoError(t, err)
		require.True(t, ok)
		ok, err = f.d.Delete(f.ctx, ref)
		require.NoError(t, err)
		require.False(t, ok)
	}
	require.EqualValues(t, 1199, f.client.ZCard(f.ctx, f.key("retry")).Val())
	_, ok, err = f.d.Reschedule(f.ctx, sidekiq.Ref{Set: sidekiq.Retry, JID: "none"}, at)
	require.NoError(t, err)
	require.False(t, ok)
}

// Two jobs share a score; only the one with the id is touched.
func TestJobsOfOneScoreAreApart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	for _, jid := range []string{"x", "y", "z"} {
		f.schedule(sidekiq.Dead, 1795230010.4451306, withJID(jid, ""))
	}
	ok, err := f.d.Delete(f.ctx, sidekiq.Ref{Set: sidekiq.Dead, JID: "y", Score: 1795230010.4451306})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []redis.Z{
		{Score: 1795230010.4451306, Member: withJID("x", "")}, {Score: 1795230010.4451306, Member: withJID("z", "")},
	}, f.set("dead"))
}

// A bulk push of Ruby gives all of its jobs one score. A look for one of them reads them in steps.
func TestAScoreOfManyJobsIsReadInSteps(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	for i := range 3000 {
		f.schedule(sidekiq.Schedule, 1795230010.5, withJID(fmt.Sprintf("j%04d", i), ""))
	}
	f.schedule(sidekiq.Schedule, 7, withJID("elsewhere", ""))
	longest := 0
	other := redis.NewClient(f.client.Options())
	t.Cleanup(func() { _ = other.Close() })
	other.AddHook(onList(func(list []string) { longest = max(longest, len(list)) }))
	for _, jid := range []string{"j0003", "j2999", "elsewhere"} {
		found, ok, err := f.through(other, sidekiq.Options{}).Find(f.ctx,
			sidekiq.Ref{Set: sidekiq.Schedule, JID: jid, Score: 1795230010.5})
		require.NoError(t, err)
		require.Equal(t, jid != "elsewhere", ok)
		if ok {
			require.Equal(t, withJID(jid, ""), string(found.Payload))
			require.InDelta(t, 1795230010.5, found.Score, 0)
		}
	}
	require.LessOrEqual(t, longest, 1200)
}

// onList is called with each reply that is a list of strings.
type onList func(list []string)

func (h onList) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h onList) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		switch c := cmd.(type) {
		case *redis.StringSliceCmd:
			h(c.Val())
		case *redis.ScanCmd:
			keys, _ := c.Val()
			h(keys)
		}
		return err
	}
}

func (h onList) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Special characters of a pattern are literal in an id.
func TestIDsAreNoPatterns(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	for _, jid := range []string{"a*c", "abc", "a?c", "a[b]c", "*"} {
		f.schedule(sidekiq.Schedule, 1, withJID(jid, ""))
	}
	// Nor does it matter how JSON has them.
	for jid, escaped := range map[string]string{
		`a"b`: `a\"b`, `a\b`: `a\\b`, "a\nb": `a\nb`, "a/b": `a\/b`, "é": `\u00e9`,
		"a<b": `a\u003cb`, strings.Repeat("x", 129): strings.Repeat("x", 129),
	} {
		f.schedule(sidekiq.Schedule, 1, withJID(escaped, ""))
		_, ok, err := f.d.Find(f.ctx, sidekiq.Ref{Set: sidekiq.Schedule, JID: jid})
		require.NoError(t, err)
		require.True(t, ok, jid)
	}
	for _, jid := range []string{"a*c", "a?c", "a[b]c", "*"} {
		found, ok, err := f.d.Find(f.ctx, sidekiq.Ref{Set: sidekiq.Schedule, JID: jid})
		require.NoError(t, err)
		require.True(t, ok, jid)
		require.Equal(t, withJID(jid, ""), string(found.Payload))
	}
	_, ok, err := f.d.Find(f.ctx, sidekiq.Ref{Set: sidekiq.Schedule, JID: "a[bx]c"})
	require.NoError(t, err)
	require.False(t, ok)
}

func TestBadRefs(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	for want, ref := range map[error]sidekiq.Ref{
		sidekiq.ErrSet: {Set: "queues", JID: "x"}, sidekiq.ErrJID: {Set: sidekiq.Dead},
	} {
		_, _, err := f.d.Find(f.ctx, ref)
		require.ErrorIs(t, err, want)
		_, _, err = f.d.Reschedule(f.ctx, ref, time.Now())
		require.ErrorIs(t, err, want)
		_, err = f.d.Delete(f.ctx, ref)
		require.ErrorIs(t, err, want)
	}
	f.schedule(sidekiq.Dead, 1, withJID("x", ""))
	_, _, err := f.d.Reschedule(f.ctx, sidekiq.Ref{Set: sidekiq.Dead, JID: "x"}, time.Time{})
	require.ErrorIs(t, err, sidekiq.ErrTime)
}

func TestStats(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	empty, err := f.d.Stats(f.ctx)
	require.NoError(t, err)
	require.Equal(t, sidekiq.Stats{Now: empty.Now}, empty)

	now := f.now()
	f.schedule(sidekiq.Schedule, 1, "a", "b", "c")
	f.schedule(sidekiq.Retry, 1, "a", "b")
	f.schedule(sidekiq.Dead, 1, "a")
	require.NoError(t, f.client.SAdd(f.ctx, f.key("processes"), "p").Err())
	require.NoError(t, f.client.Set(f.ctx, f.key("stat:processed"), 42, 0).Err())
	require.NoError(t, f.client.Set(f.ctx, f.key("stat:failed"), "odd", 0).Err())
	require.NoError(t, f.client.SAdd(f.ctx, f.key("queues"), "ms", "s", "empty", "odd").Err())
	for name, enqueued := range map[string]string{
		"ms": fmt.Sprint(now.Add(-time.Minute).UnixMilli()),
		"s":  fmt.Sprintf("%.6f", float64(now.UnixMicro())/1e6-120), "odd": `"x"`,
	} {
		// The oldest is at the tail.
		require.NoError(t, f.client.LPush(f.ctx, f.key("queue:"+name),
			job(name, `,"enqueued_at":`+enqueued), job(name, "")).Err())
	}
	got, err := f.d.Stats(f.ctx)
	require.NoError(t, err)
	require.Equal(t, []int{3, 2, 1, 1}, []int{got.Scheduled, got.Retries, got.Dead, got.Processes})
	require.EqualValues(t, 42, got.Processed)
	require.Zero(t, got.Failed)
	require.Len(t, got.Queues, 4)
	for i, want := range []struct {
		name    string
		size    int
		latency time.Duration
	}{{"empty", 0, 0}, {"ms", 2, time.Minute}, {"odd", 2, 0}, {"s", 2, 2 * time.Minute}} {
		require.Equal(t, want.name, got.Queues[i].Name)
		require.Equal(t, want.size, got.Queues[i].Size)
		require.InDelta(t, want.latency, got.Queues[i].Latency, float64(10*time.Second))
	}
}

func TestParseJobTakesWhatClientPushDoes(t *testing.T) {
	t.Parallel()
	got, err := sidekiq.ParseJob([]byte(` {"class":"W","args":[1],"queue":"q","jid":"j",` +
		`"at":1900000000.5,"created_at":1700000000123,"enqueued_at":1,"tags":["a"],"retry":5,"tags":["b"]}`))
	require.NoError(t, err)
	require.Equal(t, sidekiq.Job{
		Class: "W", Queue: "q", JID: "j", Args: []byte(`[1]`), At: time.UnixMilli(1900000000500),
		CreatedAt: time.UnixMilli(1700000000123),
		Fields:    []sidekiq.Field{{Name: "tags", Value: []byte(`["b"]`)}, {Name: "retry", Value: []byte(`5`)}},
	}, got)
	for text, want := range map[string]error{
		`[]`: sidekiq.ErrPayload, `{`: sidekiq.ErrPayload, `{"class":1}`: sidekiq.ErrClass,
		`{"queue":1}`: sidekiq.ErrPayload, `{"jid":null}`: sidekiq.ErrPayload,
		`{"at":"x"}`: sidekiq.ErrTime, `{"at":1e300}`: sidekiq.ErrTime, `{"created_at":[]}`: sidekiq.ErrTime,
		`{"created_at":1700000000}`: sidekiq.ErrTime,
	} {
		_, err := sidekiq.ParseJob([]byte(text))
		require.ErrorIs(t, err, want, text)
	}
}

// A job that leaves the set during the scan is not added again.
func TestWhatHasLeftTheSetIsNotRescheduledIntoIt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	for name, call := range map[string]func(d *sidekiq.Dialect) (bool, error){
		"reschedule": func(d *sidekiq.Dialect) (bool, error) {
			_, ok, err := d.Reschedule(f.ctx, sidekiq.Ref{Set: sidekiq.Retry, JID: "x"}, time.Now().Add(time.Hour))
			return ok, err
		},
		"delete": func(d *sidekiq.Dialect) (bool, error) {
			return d.Delete(f.ctx, sidekiq.Ref{Set: sidekiq.Retry, JID: "x"})
		},
	} {
		f.schedule(sidekiq.Retry, 1, withJID("x", ""))
		taken := &meddler{UniversalClient: f.client, before: 1, act: func(ctx context.Context) {
			require.NoError(t, f.client.ZRem(ctx, f.key("retry"), withJID("x", "")).Err())
		}}
		ok, err := call(f.through(taken, sidekiq.Options{}))
		require.NoError(t, err, name)
		require.False(t, ok, name)
		require.Empty(t, f.set("retry"), name)
	}
}

// A list has the jobs of a set, earliest first, and what is no job too.
func TestListOfASet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	for i := range 5 {
		f.schedule(sidekiq.Retry, float64(10-i), withJID(fmt.Sprint("j", i), ""))
	}
	f.schedule(sidekiq.Retry, 8.5, "no job")
	found, err := f.d.List(f.ctx, sidekiq.Retry, 2, 2)
	require.NoError(t, err)
	require.Equal(t, []sidekiq.Found{
		{Payload: []byte(withJID("j2", "")), Score: 8, At: time.Unix(8, 0)},
		{Payload: []byte("no job"), Score: 8.5, At: time.UnixMilli(8500)},
	}, found)
	found, err = f.d.List(f.ctx, sidekiq.Retry, 6, 10)
	require.NoError(t, err)
	require.Empty(t, found)
	_, err = f.d.List(f.ctx, "working", 0, 1)
	require.ErrorIs(t, err, sidekiq.ErrSet)
	_, err = f.d.List(f.ctx, sidekiq.Retry, -1, 1)
	require.ErrorIs(t, err, lua.ErrOutOfRange)
}

// A network may keep a copy of a call for a while: it has the answer of the call, and changes nothing.
func TestALateCopyOfARescheduleChangesNothing(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *sidekiq.Dialect, sidekiq.Ref) error{
		"reschedule": func(ctx context.Context, d *sidekiq.Dialect, ref sidekiq.Ref) error {
			_, _, err := d.Reschedule(ctx, ref, time.Now().Add(time.Hour))
			return err
		},
		"requeue": func(ctx context.Context, d *sidekiq.Dialect, ref sidekiq.Ref) error {
			_, err := d.Requeue(ctx, ref)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := newSite(t, sidekiq.V7), t.Context()
			ref := sidekiq.Ref{Set: sidekiq.Retry, JID: "mine"}
			member := redis.Z{Score: 2e9, Member: withJID("mine", "")}
			require.NoError(t, s.client.ZAdd(ctx, s.key("retry"), member).Err())
			var late []any
			c := luatomictest.Client(t)
			c.AddHook(lab.Before(func(cmds ...redis.Cmder) {
				if late == nil && strings.HasPrefix(cmds[0].Name(), "eval") {
					late = slices.Clone(cmds[0].Args())
				}
			}))
			require.NoError(t, call(ctx, s.dialect(c, sidekiq.V7), ref))
			require.NotEmpty(t, late)
			require.NoError(t, s.client.ZAdd(ctx, s.key("retry"), member).Err()) // it is what it was again
			answer, err := s.client.Do(ctx, late...).Slice()
			require.NoError(t, err)
			require.EqualValues(t, 1, answer[0])
			require.Equal(t, []redis.Z{member}, s.members("retry"))
		})
	}
}

// The job had left its set when the call ran, and is there again when the copy comes.
func TestALateCopyOfARescheduleOfNothingChangesNothing(t *testing.T) {
	t.Parallel()
	s, ctx := newSite(t, sidekiq.V7), t.Context()
	member := redis.Z{Score: 2e9, Member: withJID("mine", "")}
	p := script.RescheduleParams{
		Set: s.key("retry"), Receipt: s.key("receipt"), Member: []byte(withJID("mine", "")), Due: "77.5",
	}
	for range 2 {
		r, err := script.Reschedule(ctx, s.client, p)
		require.NoError(t, err)
		require.False(t, r.Found)
		require.NoError(t, s.client.ZAdd(ctx, s.key("retry"), member).Err())
	}
	require.Equal(t, []redis.Z{member}, s.members("retry"))
}
