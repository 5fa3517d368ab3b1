package sidekiq_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/luatomictest"
)

func (f *fleet) schedule(set sidekiq.Set, score float64, members ...string) {
	f.t.Helper()
	for i, m := range members {
		require.NoError(f.t,
			f.client.ZAdd(f.ctx, f.key(string(set)), redis.Z{Score: score + float64(i), Member: m}).Err())
	}
}

func job(queue, more string) string {
	return `{"queue":"` + queue + `","class":"W","args":[]` + more + `}`
}

func TestMoveDueChangesOneFieldOfEachJob(t *testing.T) {
	t.Parallel()
	nested := `{"args":[{"enqueued_at":1.5,"queue":"in"}],"queue":"a","n":12345678901234567890123,"e":[],"u":"\u00e9é"`
	for version, kind := range map[sidekiq.Version]string{sidekiq.V6: `\d{10}\.(0|\d{0,5}[1-9])`,
		sidekiq.V8: `\d{13}`} {
		for _, set := range []sidekiq.Set{sidekiq.Schedule, sidekiq.Retry} {
			f := newFleet(t, sidekiq.Options{Version: version})
			f.schedule(set, 1,
				nested+`}`, nested+`,"enqueued_at":1795230010.0290926,"z":1}`, nested+`,"enqueued_at" : "odd" } `,
				`{"enqueued_at":1,"queue":"a","enqueued_at":2}`, job("b", `,"enqueued_at":null`),
				` { "queue" : "b" } `, `{"qu\u0065ue":"\u0062"}`)
			f.schedule(set, float64(f.now().Unix()+3600), job("b", `,"later":1`))
			got, err := f.d.MoveDue(f.ctx, set, 0)
			require.NoError(t, err)
			require.Equal(t, 7, got.Moved)
			require.Empty(t, got.Malformed)
			next, there := got.NextDue.Get()
			require.True(t, there)
			require.InDelta(t, 3600, next.Sub(got.Now).Seconds(), 60)
			a, b := f.queue("a"), f.queue("b")
			for i, want := range []string{
				nested + `,"enqueued_at":%}`, nested + `,"enqueued_at":%,"z":1}`,
				nested + `,"enqueued_at" : % } `, `{"enqueued_at":1,"queue":"a","enqueued_at":%}`,
			} {
				requireStamped(t, want, kind, a[i])
			}
			for i, want := range []string{
				job("b", `,"enqueued_at":%`), ` { "queue" : "b" ,"enqueued_at":%} `,
				`{"qu\u0065ue":"\u0062","enqueued_at":%}`,
			} {
				requireStamped(t, want, kind, b[i])
			}
			require.Len(t, f.set(string(set)), 1)
			require.ElementsMatch(t, []string{"a", "b"}, f.client.SMembers(f.ctx, f.key("queues")).Val())
		}
	}
}

// requireStamped requires the text with a time in place of %.
func requireStamped(t *testing.T, want, kind, got string) {
	t.Helper()
	head, tail, _ := strings.Cut(want, "%")
	require.True(t, strings.HasPrefix(got, head) && strings.HasSuffix(got, tail), got)
	require.Regexp(t, "^"+kind+"$", got[len(head):len(got)-len(tail)])
}

// A member that is not a job moves to quarantine with its score and delays no other.
func TestMalformedMembersAreQuarantined(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	bad := []string{`not json`, `[]`, `null`, `{"class":"W"}`, `{"queue":1}`, `{"queue":""}`, `{"queue":null}`,
		`{"queue":"a"}}`, "\xff", `{"queue":"a","x":"` + "\n" + `"}`,
		`{"queue":"a","queue":["b"]}`, `{"queue":"a","d":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`}
	f.schedule(sidekiq.Retry, 1.5, bad...)
	f.schedule(sidekiq.Retry, 100, job("a", ""))
	got, err := f.d.MoveDue(f.ctx, sidekiq.Retry, 5) // the bad ones fill two calls
	require.NoError(t, err)
	require.Len(t, got.Malformed, 5)
	got, err = f.d.MoveDue(f.ctx, sidekiq.Retry, 0)
	require.NoError(t, err)
	require.Equal(t, 1, got.Moved)
	require.Len(t, got.Malformed, len(bad)-5)
	for i, m := range got.Malformed {
		require.ErrorIs(t, m.Err, sidekiq.ErrPayload)
		require.Equal(t, bad[i+5], string(m.Member))
		require.Equal(t, sidekiq.Retry, m.Set)
	}
	require.Empty(t, f.set("retry"))
	kept := f.set("retry:quarantine")
	require.Len(t, kept, len(bad))
	for i, z := range kept {
		require.Equal(t, redis.Z{Score: 1.5 + float64(i), Member: bad[i]}, z)
	}
	_, there := got.NextDue.Get()
	require.False(t, there)
}

// An empty member is one like others: a quarantine of others leaves it where it is.
func TestQuarantineLeavesAnEmptyMember(t *testing.T) {
	t.Parallel()
	c, ctx, p := luatomictest.Client(t), t.Context(), luatomictest.Namespace(t)
	require.NoError(t, c.ZAdd(ctx, p, redis.Z{Score: 1, Member: ""}, redis.Z{Score: 2, Member: "bad"}).Err())
	moved, err := script.Quarantine(ctx, c, script.QuarantineParams{Set: p, Quarantine: p + ":quarantine",
		Members: [][]byte{[]byte("bad")}})
	require.NoError(t, err)
	require.EqualValues(t, 1, moved)
	require.Equal(t, []string{""}, c.ZRange(ctx, p, 0, -1).Val())
}

// So does a move of others, such as the Requeue of a dead job.
func TestAMoveLeavesAnEmptyMember(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	require.NoError(t, f.client.ZAdd(f.ctx, f.key("dead"), redis.Z{Score: 1, Member: ""},
		redis.Z{Score: 2, Member: payload("default", "a", "")}).Err())
	ok, err := f.d.Requeue(f.ctx, sidekiq.Ref{Set: sidekiq.Dead, JID: "a"})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []string{""}, f.client.ZRange(f.ctx, f.key("dead"), 0, -1).Val())
}

func TestMoveDueTakesTheTwoSetsOnly(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	for _, set := range []sidekiq.Set{sidekiq.Dead, "", "queues"} {
		_, err := f.d.MoveDue(f.ctx, set, 0)
		require.ErrorIs(t, err, sidekiq.ErrSet)
	}
	got, err := f.d.MoveDue(f.ctx, sidekiq.Schedule, 0)
	require.NoError(t, err)
	require.Zero(t, got.Moved)
}

// Odd scores: a member that Ruby's poller would move now is moved, one that is never due stays.
func TestScoresWithoutATime(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	f.schedule(sidekiq.Schedule, math.Inf(-1), job("a", `,"n":1`))
	f.schedule(sidekiq.Schedule, math.Inf(1), job("a", `,"n":2`))
	f.schedule(sidekiq.Schedule, -5, job("a", `,"n":3`))
	got, err := f.d.MoveDue(f.ctx, sidekiq.Schedule, 0)
	require.NoError(t, err)
	require.Equal(t, 2, got.Moved)
	_, there := got.NextDue.Get()
	require.False(t, there)
	require.Len(t, f.set("schedule"), 1)
}

// A queue that cannot be written to keeps its jobs, and the others move.
func TestAQueueOfAnotherTypeHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	require.NoError(t, f.client.Set(f.ctx, f.key("queue:bad"), "x", 0).Err())
	f.schedule(sidekiq.Schedule, 1, job("bad", ""), job("good", ""))
	_, err := f.d.MoveDue(f.ctx, sidekiq.Schedule, 0)
	require.ErrorIs(t, err, sidekiq.ErrQueueRefused)
	require.ErrorContains(t, err,
		`sidekiq: move from schedule: sidekiq: queue cannot be written to: "`+f.key("queue:bad")+
			`"; its jobs stay in the set: WRONGTYPE`)
	require.Len(t, f.queue("good"), 1)
	require.Equal(t, job("bad", ""), f.set("schedule")[0].Member)
	require.Equal(t, "x", f.client.Get(f.ctx, f.key("queue:bad")).Val())
}

// Nor does a quarantine that cannot be written to: what is not a job stays in the set.
func TestAQuarantineOfAnotherTypeHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	quarantine := f.key("schedule:quarantine")
	require.NoError(t, f.client.Set(f.ctx, quarantine, "x", 0).Err())
	bad := make([]redis.Z, 1300)
	for i := range bad {
		bad[i] = redis.Z{Score: float64(i), Member: fmt.Sprint("bad", i)}
	}
	require.NoError(t, f.client.ZAdd(f.ctx, f.key("schedule"), bad...).Err())
	f.schedule(sidekiq.Schedule, 100.5, job("good", `,"n":1`))
	f.schedule(sidekiq.Schedule, 5000, job("good", `,"n":2`))
	got, err := f.d.MoveDue(f.ctx, sidekiq.Schedule, 0)
	require.ErrorIs(t, err, sidekiq.ErrQueueRefused)
	require.ErrorContains(t, err, `"`+quarantine+`"; what is not a job stays in the set: `)
	require.ErrorContains(t, err, "WRONGTYPE")
	require.Equal(t, 2, got.Moved)
	require.Empty(t, got.Malformed)
	require.Len(t, f.queue("good"), 2)
	require.Len(t, f.set("schedule"), 1300)
	require.NoError(t, f.client.Del(f.ctx, quarantine).Err())
	got, err = f.d.MoveDue(f.ctx, sidekiq.Schedule, 0)
	require.NoError(t, err)
	require.Len(t, got.Malformed, sidekiq.MaxBatch)
}

// Jobs of such a queue are skipped even when they fill whole steps.
func TestJobsBehindAQueueOfAnotherTypeAreMoved(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	require.NoError(t, f.client.Set(f.ctx, f.key("queue:bad"), "x", 0).Err())
	stuck := make([]redis.Z, 1300)
	for i := range stuck {
		stuck[i] = redis.Z{Score: float64(i), Member: job("bad", fmt.Sprintf(`,"n":%d`, i))}
	}
	require.NoError(t, f.client.ZAdd(f.ctx, f.key("schedule"), stuck...).Err())
	f.schedule(sidekiq.Schedule, 5000, job("good", `,"n":1`), job("good", `,"n":2`))
	f.schedule(sidekiq.Schedule, 6000, "not a job")
	got, err := f.d.MoveDue(f.ctx, sidekiq.Schedule, 0)
	require.ErrorContains(t, err, "queue:bad")
	require.Equal(t, 2, got.Moved)
	require.Len(t, got.Malformed, 1)
	require.Len(t, f.queue("good"), 2)
	require.Len(t, f.set("schedule"), 1300)
	require.NoError(t, f.client.Del(f.ctx, f.key("queue:bad")).Err())
	for moved := 0; moved < 1300; {
		got, err = f.d.MoveDue(f.ctx, sidekiq.Schedule, 0)
		require.NoError(t, err)
		require.Positive(t, got.Moved)
		moved += got.Moved
	}
}

func TestLargePayloadsAreMovedInSteps(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	for i := range 5 {
		f.schedule(sidekiq.Schedule, float64(i),
			job("a", fmt.Sprintf(`,"n":%d,"x":%q`, i, strings.Repeat("x", 700<<10))))
	}
	f.schedule(sidekiq.Schedule, 10, job("a", fmt.Sprintf(`,"n":5,"x":%q`, strings.Repeat("x", 3<<20))),
		job("a", `,"n":6`))
	got, err := f.d.MoveDue(f.ctx, sidekiq.Schedule, 0)
	require.NoError(t, err)
	require.Equal(t, 7, got.Moved)
	for i, p := range f.queue("a") {
		require.Contains(t, p[:min(80, len(p))], fmt.Sprintf(`"n":%d`, i))
	}
}

func TestMaxBoundsACall(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	for i := range 250 {
		f.schedule(sidekiq.Schedule, float64(i), job("a", fmt.Sprintf(`,"n":%d`, i)))
	}
	got, err := f.d.MoveDue(f.ctx, sidekiq.Schedule, 120)
	require.NoError(t, err)
	require.Equal(t, 120, got.Moved)
	require.Len(t, f.queue("a"), 120)
	next, there := got.NextDue.Get()
	require.True(t, there)
	require.False(t, next.After(got.Now), "more are due")
}

// A job that another process moves or reschedules between the read and the move is left alone.
func TestWhatChangedSinceItWasReadIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	moved, off, stays := job("a", `,"n":"moved"`), job("a", `,"n":"off"`), job("a", `,"n":"stays"`)
	f.schedule(sidekiq.Schedule, 1, moved, off, stays)
	meddling := &meddler{UniversalClient: f.client, before: 2, act: func(ctx context.Context) {
		require.NoError(t, f.client.ZRem(ctx, f.key("schedule"), moved).Err())
		require.NoError(t, f.client.ZAdd(ctx, f.key("schedule"), redis.Z{Score: 1e11, Member: off}).Err())
	}}
	got, err := f.through(meddling, sidekiq.Options{}).MoveDue(f.ctx, sidekiq.Schedule, 0)
	require.NoError(t, err)
	require.Equal(t, 1, got.Moved)
	require.Len(t, f.queue("a"), 1)
	require.Contains(t, f.queue("a")[0], "stays")
	require.Equal(t, []redis.Z{{Score: 1e11, Member: off}}, f.set("schedule"))
}

// meddler runs a function once, before the n-th command that passes it.
type meddler struct {
	redis.UniversalClient
	n, before int
	act       func(ctx context.Context)
}

func (m *meddler) Process(ctx context.Context, cmd redis.Cmder) error {
	if m.n++; m.n == m.before {
		m.act(ctx)
	}
	return m.UniversalClient.Process(ctx, cmd)
}

// A server at maxmemory refuses pushes whole. What is there moves, a member that is no job too: nothing grows by it.
func TestAFullServerLosesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r := luatomictest.StartServer(t, "--maxmemory-policy", "noeviction").Client()
	d, err := sidekiq.New(r, nil)
	require.NoError(t, err)
	require.NoError(t, r.ZAdd(ctx, "schedule",
		redis.Z{Score: 1, Member: job("a", "")}, redis.Z{Score: 2, Member: "bad"}).Err())
	require.NoError(t, r.ConfigSet(ctx, "maxmemory", "1").Err())
	_, err = d.PushBulk(ctx, []sidekiq.Job{{Class: "W"}, {Class: "W", Queue: "b"}, {Class: "W", In: time.Hour}})
	require.ErrorContains(t, err, "OOM")
	_, err = d.PushOnce(ctx, "token", time.Hour, []sidekiq.Job{{Class: "W"}, {Class: "W", Queue: "b"}})
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, []string{"schedule"}, r.Keys(ctx, "*").Val())
	m, err := d.MoveDue(ctx, sidekiq.Schedule, 0)
	require.NoError(t, err)
	require.Equal(t, 1, m.Moved)
	require.Len(t, m.Malformed, 1)
	require.EqualValues(t, 1, r.ZCard(ctx, "schedule:quarantine").Val())
	require.EqualValues(t, 1, r.LLen(ctx, "queue:a").Val())
}
