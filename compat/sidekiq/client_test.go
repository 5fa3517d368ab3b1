package sidekiq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// fleet is a Sidekiq system of one test's own on the shared server, separated by its namespace.
type fleet struct {
	t      *testing.T
	ctx    context.Context
	client *redis.Client
	ns     string
	d      *sidekiq.Dialect
}

func newFleet(t *testing.T, opts sidekiq.Options) *fleet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	f := &fleet{t: t, ctx: ctx, client: luatomictest.Client(t), ns: luatomictest.Namespace(t)}
	f.d = f.through(f.client, opts)
	return f
}

// through returns a dialect of the same system over another client.
func (f *fleet) through(c lua.Client, opts sidekiq.Options) *sidekiq.Dialect {
	f.t.Helper()
	opts.Namespace = f.ns
	d, err := sidekiq.New(c, &opts)
	require.NoError(f.t, err)
	return d
}

func (f *fleet) key(name string) string { return f.ns + ":" + name }

// queue returns the payloads of a queue, the next to serve first.
func (f *fleet) queue(name string) []string {
	f.t.Helper()
	all, err := f.client.LRange(f.ctx, f.key("queue:"+name), 0, -1).Result()
	require.NoError(f.t, err)
	slices.Reverse(all)
	return all
}

func (f *fleet) set(name string) []redis.Z {
	f.t.Helper()
	all, err := f.client.ZRangeWithScores(f.ctx, f.key(name), 0, -1).Result()
	require.NoError(f.t, err)
	return all
}

func (f *fleet) now() time.Time {
	f.t.Helper()
	now, err := f.client.Time(f.ctx).Result()
	require.NoError(f.t, err)
	return now
}

var stamps = regexp.MustCompile(`"(created_at|enqueued_at)":([0-9.]+)`)

// unstamped removes the times, which differ from run to run, from a payload.
func unstamped(payload string) string { return stamps.ReplaceAllString(payload, `"$1":T`) }

func args(n int) json.RawMessage { return json.RawMessage(fmt.Sprintf("[%d]", n)) }

func TestPushWritesEachVersionsForm(t *testing.T) {
	t.Parallel()
	options := `"retry":3,"queue":"q","tags":["a"],`
	for version, want := range map[sidekiq.Version]string{
		sidekiq.V4: `{"class":"W","args":[1],"retry":3,"queue":"q","tags":["a"],"jid":"j","created_at":T,"enqueued_at":T}`,
		sidekiq.V5: `{"class":"W","args":[1],"retry":3,"queue":"q","tags":["a"],"jid":"j","created_at":T,"enqueued_at":T}`,
		sidekiq.V6: `{` + options + `"class":"W","args":[1],"jid":"j","created_at":T,"enqueued_at":T}`,
		sidekiq.V7: `{` + options + `"class":"W","args":[1],"jid":"j","created_at":T,"enqueued_at":T}`,
		sidekiq.V8: `{` + options + `"class":"W","args":[1],"jid":"j","created_at":T,"enqueued_at":T}`,
	} {
		f := newFleet(t, sidekiq.Options{Version: version})
		before := f.now()
		jid, err := f.d.Push(f.ctx, sidekiq.Job{Class: "W", Queue: "q", Args: args(1), JID: "j",
			Fields: []sidekiq.Field{
				{Name: "tags", Value: json.RawMessage(`[ "a" ]`)}, {Name: "retry", Value: json.RawMessage(`3`)}}})
		require.NoError(t, err)
		after := f.now()
		require.Equal(t, "j", jid)
		got := f.queue("q")
		require.Len(t, got, 1)
		require.Equal(t, want, unstamped(got[0]))
		for _, m := range stamps.FindAllStringSubmatch(got[0], -1) {
			at := stampTime(t, version, m[2])
			require.False(t, at.Before(before.Add(-time.Second).Truncate(time.Millisecond)), m[0])
			require.False(t, at.After(after.Add(time.Second)), m[0])
			if m[1] == "enqueued_at" { // the server's clock, to the version's precision
				require.False(t, at.Before(before.Truncate(time.Millisecond)) || at.After(after), m[0])
			}
		}
		require.Equal(t, []string{"q"}, f.client.SMembers(f.ctx, f.key("queues")).Val())
	}
}

// stampTime reads a time and requires the version's form: float seconds, or whole milliseconds.
func stampTime(t *testing.T, version sidekiq.Version, text string) time.Time {
	t.Helper()
	var n float64
	require.NoError(t, json.Unmarshal([]byte(text), &n))
	if version == sidekiq.V8 {
		require.Regexp(t, `^\d{13}$`, text)
		return time.UnixMilli(int64(n))
	}
	require.Regexp(t, `^\d{10}\.(0|\d{0,5}[1-9])$`, text)
	return time.UnixMicro(int64(n*1e6 + 0.5))
}

func TestDefaultsOfAJob(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	require.Equal(t, sidekiq.V7, f.d.Version())
	jid, err := f.d.Push(f.ctx, sidekiq.Job{Class: "W"})
	require.NoError(t, err)
	require.Regexp(t, `^[0-9a-f]{24}$`, jid)
	require.Equal(t,
		`{"retry":true,"queue":"default","class":"W","args":[],"jid":"`+jid+`","created_at":T,"enqueued_at":T}`,
		unstamped(f.queue("default")[0]))
	other, err := f.d.Push(f.ctx, sidekiq.Job{Class: "W"})
	require.NoError(t, err)
	require.NotEqual(t, jid, other)
}

// Jobs of several queues, now and later, in every order: each queue gets its jobs in order, when they are due by the
// server's clock.
func TestOneBatchOverQueuesNowAndLater(t *testing.T) {
	t.Parallel()
	for seed := range 6 {
		f := newFleet(t, sidekiq.Options{Version: sidekiq.V8, ExactTimes: true})
		later := f.now().Add(time.Hour).Truncate(time.Millisecond)
		jobs := []sidekiq.Job{
			{Class: "W", Queue: "a", Args: args(0)}, {Class: "W", Queue: "b", Args: args(1)},
			{Class: "W", Queue: "a", Args: args(2), At: later},
			{Class: "W", Queue: "a", Args: args(3), At: later.Add(-2 * time.Hour)},
			{Class: "W", Queue: "b", Args: args(4), In: 90 * time.Minute},
			{Class: "W", Queue: "b", Args: args(5), In: -time.Second},
			{Payload: []byte(`{"class":"W","args":[6],"queue":"a","jid":"x","enqueued_at":1795230010442}`)},
			{Payload: []byte(`{"class":"W","args":[7],"queue":"b","jid":"y","at":1795230010.5}`)},
		}
		jobs = append(jobs[seed:], jobs[:seed]...)
		got, err := f.d.PushBulk(f.ctx, jobs)
		require.NoError(t, err)
		ready, scheduled := 0, 0
		want := map[string][]string{}
		for i, job := range jobs {
			n := (i + seed) % 8
			switch {
			case n == 2 || n == 4:
				scheduled++
			case n == 7 && f.now().Unix() < 1795230010:
				scheduled++
			default:
				ready++
				name := job.Queue
				if n == 6 {
					name = "a"
				} else if n == 7 {
					name = "b"
				}
				want[name] = append(want[name], fmt.Sprintf("[%d]", n))
			}
		}
		require.Equal(t, []int{ready, scheduled, 8}, []int{got.Ready, got.Scheduled, len(got.JIDs)})
		for name, list := range want {
			require.Equal(t, list, argsOf(t, f.queue(name)), "seed %d queue %s", seed, name)
		}
		for _, z := range f.set("schedule") {
			require.NotContains(t, z.Member, "enqueued_at")
			require.NotContains(t, z.Member, `"at"`)
		}
		require.EqualValues(t, scheduled, f.client.ZCard(f.ctx, f.key("schedule")).Val())
		require.EqualValues(t, 1, f.client.ZCount(f.ctx, f.key("schedule"),
			fmt.Sprint(later.UnixMilli()/1000), fmt.Sprint(later.UnixMilli()/1000+1)).Val())
	}
}

func argsOf(t *testing.T, payloads []string) (out []string) {
	t.Helper()
	for _, p := range payloads {
		var job struct {
			Args       json.RawMessage
			EnqueuedAt *float64 `json:"enqueued_at"`
		}
		require.NoError(t, json.Unmarshal([]byte(p), &job), p)
		require.NotNil(t, job.EnqueuedAt, p)
		require.NotContains(t, p, `"at"`)
		out = append(out, string(job.Args))
	}
	return out
}

func TestTimesForLater(t *testing.T) {
	t.Parallel()
	exact := newFleet(t, sidekiq.Options{ExactTimes: true})
	at := exact.now().Add(time.Hour).Truncate(time.Microsecond)
	_, err := exact.d.PerformAt(exact.ctx, at, sidekiq.Job{Class: "W"})
	require.NoError(t, err)
	require.InDelta(t, float64(at.UnixMicro())/1e6, exact.set("schedule")[0].Score, 1e-7)

	f := newFleet(t, sidekiq.Options{})
	jobs := make([]sidekiq.Job, 1000)
	for i := range jobs {
		jobs[i] = sidekiq.Job{Class: "W", At: at}
	}
	_, err = f.d.PushBulk(f.ctx, jobs)
	require.NoError(t, err)
	scores := map[float64]bool{}
	for _, z := range f.set("schedule") {
		scores[z.Score] = true
		// never early, at most a millisecond late
		require.InDelta(t, float64(at.UnixMicro())/1e6+0.0005, z.Score, 0.00051)
	}
	require.Len(t, scores, 1000, "jobs share a score")

	// Nor do those whose times come closer to each other, and those of both kinds.
	at = f.now().Add(3 * time.Hour).Truncate(time.Microsecond)
	for name, of := range map[string]func(i int) sidekiq.Job{
		"falling": func(i int) sidekiq.Job { return sidekiq.Job{At: at.Add(-time.Duration(i) * time.Microsecond)} },
		"rising":  func(i int) sidekiq.Job { return sidekiq.Job{At: at.Add(time.Duration(i%7) * time.Microsecond)} },
		"delays": func(i int) sidekiq.Job {
			return sidekiq.Job{In: 3*time.Hour - time.Duration(i)*time.Microsecond}
		},
		"until":     func(int) sidekiq.Job { return sidekiq.Job{In: time.Until(at)} },
		"one delay": func(int) sidekiq.Job { return sidekiq.Job{In: 3 * time.Hour} },
		"both": func(i int) sidekiq.Job {
			if i%2 == 0 {
				return sidekiq.Job{At: at}
			}
			return sidekiq.Job{In: time.Until(at)}
		},
	} {
		f := newFleet(t, sidekiq.Options{})
		jobs := make([]sidekiq.Job, 1000)
		for i := range jobs {
			jobs[i] = of(i)
			jobs[i].Class = "W"
		}
		_, err = f.d.PushBulk(f.ctx, jobs)
		require.NoError(t, err)
		scores := map[float64]bool{}
		for _, z := range f.set("schedule") {
			scores[z.Score] = true
		}
		require.Len(t, scores, 1000, name)
	}

	in := newFleet(t, sidekiq.Options{ExactTimes: true})
	before := in.now()
	_, err = in.d.PerformIn(in.ctx, 90*time.Second, sidekiq.Job{Class: "W"})
	require.NoError(t, err)
	score := in.set("schedule")[0].Score
	require.GreaterOrEqual(t, score, float64(before.UnixMicro())/1e6+90-1e-6)
	require.LessOrEqual(t, score, float64(in.now().UnixMicro())/1e6+90+1e-6)
}

func TestAPayloadIsPassedThrough(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	finished := ` {"jid":"x" , "class":"W","args":[ {"enqueued_at":1} ],"queue":"a\u0062",` +
		`"enqueued_at":1795230010.5, "z":1e300}` + "\n"
	bare := `{"jid":"y","class":"W","args":[],"queue":"ab","created_at":1.5} `
	_, err := f.d.PushBulk(f.ctx, []sidekiq.Job{{Payload: []byte(finished)}, {Payload: []byte(bare)}})
	require.NoError(t, err)
	got := f.queue("ab")
	require.Equal(t, finished, got[0])
	require.Equal(t, `{"jid":"y","class":"W","args":[],"queue":"ab","created_at":T,"enqueued_at":T}`, unstamped(got[1]))

	_, err = f.d.Push(f.ctx, sidekiq.Job{Payload: []byte(finished), In: time.Hour})
	require.NoError(t, err)
	require.NotContains(t, strings.ReplaceAll(f.set("schedule")[0].Member.(string), `[ {"enqueued_at":1} ]`, ""),
		"enqueued_at")
}

// With more than one step, each is pushed whole or not at all, in order, within its limits.
func TestLargeBatchesAreSplit(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	jobs := make([]sidekiq.Job, 2500)
	for i := range jobs {
		jobs[i] = sidekiq.Job{Class: "W", Queue: "q", Args: args(i)}
	}
	got, err := f.d.PushBulk(f.ctx, jobs)
	require.NoError(t, err)
	require.Len(t, got.JIDs, 2500)
	require.Equal(t, 2500, got.Ready)
	list := argsOf(t, f.queue("q"))
	for i := range jobs {
		require.Equal(t, fmt.Sprintf("[%d]", i), list[i])
	}

	big := json.RawMessage(`["` + strings.Repeat("x", 400<<10) + `"]`)
	got, err = f.d.PushBulk(f.ctx,
		[]sidekiq.Job{{Class: "W", Args: big}, {Class: "W", Args: big}, {Class: "W", Args: big}})
	require.NoError(t, err)
	require.Equal(t, 3, got.Ready)

	_, err = f.d.PushOnce(f.ctx, "t", time.Minute, jobs)
	require.ErrorIs(t, err, sidekiq.ErrSplit)

	// The third step has a queue of another type: the first two are pushed.
	require.NoError(t, f.client.Set(f.ctx, f.key("queue:bad"), "x", 0).Err())
	jobs[2100].Queue = "bad"
	got, err = f.d.PushBulk(f.ctx, jobs)
	require.ErrorIs(t, err, lua.ErrWrongType)
	require.Len(t, got.JIDs, 2000)
	require.Equal(t, 2000, got.Ready)
	require.EqualValues(t, 4500, f.client.LLen(f.ctx, f.key("queue:q")).Val())

	got, err = f.d.PushBulk(f.ctx, nil)
	require.NoError(t, err)
	require.Empty(t, got.JIDs)
}

func TestPushOnceIsKnownByItsToken(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{ExactTimes: true})
	jobs := []sidekiq.Job{{Class: "W", Queue: "q", JID: "a"}, {Class: "W", Queue: "q", JID: "b", In: time.Hour}}
	first, err := f.d.PushOnce(f.ctx, "order-7", time.Minute, jobs)
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, []int{first.Ready, first.Scheduled})
	again, err := f.d.PushOnce(f.ctx, "order-7", time.Minute, jobs)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Len(t, f.queue("q"), 1)
	require.Len(t, f.set("schedule"), 1)
	ttl := f.client.PTTL(f.ctx, f.key("luatomic:push:order-7")).Val()
	require.InDelta(t, time.Minute, ttl, float64(20*time.Second))
	_, err = f.d.PushOnce(f.ctx, "order-8", time.Minute, jobs)
	require.NoError(t, err)
	require.Len(t, f.queue("q"), 2)
	late, err := f.d.PushOnce(f.ctx, "late", time.Minute,
		[]sidekiq.Job{{Class: "W", Queue: "late", At: f.now().Add(-time.Hour)}})
	require.NoError(t, err)
	require.Equal(t, 1, late.Ready)
	require.Len(t, f.queue("late"), 1)
	many, err := f.d.PushOnce(f.ctx, "many", time.Minute, []sidekiq.Job{
		{Class: "W", Queue: "x"}, {Class: "W", Queue: "x"}, {Class: "W", Queue: "x"}, {Class: "W", Queue: "y"},
		{Class: "W", Queue: "z", In: time.Hour},
	})
	require.NoError(t, err)
	require.Equal(t, []int{4, 1}, []int{many.Ready, many.Scheduled})
	require.Len(t, f.queue("x"), 3, "jobs of one run")
	require.Len(t, f.queue("y"), 1)
	require.False(t, f.client.SIsMember(f.ctx, f.key("queues"), "z").Val(), "a queue of jobs for later alone")
	finished := `{"class":"W","args":[],"queue":"done","jid":"c","created_at":1.5,"enqueued_at":2.5}`
	_, err = f.d.PushOnce(f.ctx, "done", time.Minute, []sidekiq.Job{{Payload: []byte(finished)}})
	require.NoError(t, err)
	require.Equal(t, []string{finished}, f.queue("done"), "a payload with its enqueued_at is pushed as it is")
	_, err = f.d.PushOnce(f.ctx, "a{b}", time.Minute, jobs)
	require.ErrorIs(t, err, lua.ErrBadName)
	require.NotContains(t, err.Error(), "a{b}", "a token can be a secret")
	_, err = f.d.PushOnce(f.ctx, "x", 0, jobs)
	require.ErrorIs(t, err, lua.ErrOutOfRange)
}

// A token that comes with other jobs is refused, and pushes nothing: the answer of its first push would say that they
// are in. What a repeat works out anew may differ. The guard is the digest in the receipt.
func TestATokenUsedForOtherJobsIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sidekiq.Options{})
	finished := []byte(`{"class":"W","args":[1],"queue":"q","jid":"c"}`)
	jobs := []sidekiq.Job{{Class: "W", JID: "a"}, {Class: "V", Queue: "r", Args: []byte(`[2]`)}, {Payload: finished}}
	first, err := f.d.PushOnce(f.ctx, "token", time.Minute, jobs)
	require.NoError(t, err)
	change := func(i int, f func(*sidekiq.Job)) []sidekiq.Job {
		out := slices.Clone(jobs)
		f(&out[i])
		return out
	}
	payload := func(text string) []sidekiq.Job {
		return change(2, func(j *sidekiq.Job) { j.Payload = []byte(text) })
	}
	state := func() []any {
		return []any{f.queue("default"), f.queue("q"), f.queue("r"), f.set("schedule"),
			f.client.Get(f.ctx, f.key("luatomic:push:token")).Val(),
			f.client.SCard(f.ctx, f.key("queues")).Val()}
	}
	before := state()
	for name, other := range map[string][]sidekiq.Job{
		"jid":              change(0, func(j *sidekiq.Job) { j.JID = "b" }),
		"no jid":           change(0, func(j *sidekiq.Job) { j.JID = "" }),
		"class":            change(1, func(j *sidekiq.Job) { j.Class = "W" }),
		"queue":            change(1, func(j *sidekiq.Job) { j.Queue = "" }),
		"args":             change(1, func(j *sidekiq.Job) { j.Args = []byte(`[3]`) }),
		"class of payload": payload(`{"class":"V","args":[1],"queue":"q","jid":"c"}`),
		"args of payload":  payload(`{"class":"W","args":[2],"queue":"q","jid":"c"}`),
		"queue of payload": payload(`{"class":"W","args":[1],"queue":"r","jid":"c"}`),
		"jid of payload":   payload(`{"class":"W","args":[1],"queue":"q","jid":"d"}`),
		"order":            {jobs[1], jobs[0], jobs[2]},
		"fewer":            jobs[:2],
		"more":             append(slices.Clone(jobs), sidekiq.Job{Class: "W"}),
	} {
		got, err := f.d.PushOnce(f.ctx, "token", time.Minute, other)
		require.ErrorIs(t, err, sidekiq.ErrTokenReused, name)
		require.ErrorIs(t, err, lua.ErrRefused, name)
		require.ErrorContains(t, err, "use another token", name)
		require.Zero(t, got, name)
	}
	for name, same := range map[string][]sidekiq.Job{
		"defaults": change(0, func(j *sidekiq.Job) { j.Queue, j.Args = "default", []byte("[]") }),
		"times":    change(0, func(j *sidekiq.Job) { j.In, j.CreatedAt = time.Hour, time.UnixMilli(1) }),
		"field": change(1, func(j *sidekiq.Job) {
			j.Fields = []sidekiq.Field{{Name: "traceparent", Value: []byte(`"00-1"`)}}
		}),
		"payload with times": payload(`{"jid":"c","args":[1],"queue":"q","class":"W","created_at":1.5,"at":2.5,"n":1}`),
		"not finished": change(2, func(j *sidekiq.Job) {
			*j = sidekiq.Job{Class: "W", Queue: "q", Args: []byte(`[1]`), JID: "c"}
		}),
	} {
		again, err := f.d.PushOnce(f.ctx, "token", time.Minute, same)
		require.NoError(t, err, name)
		require.Equal(t, []any{first.Ready, first.Scheduled, first.Now}, []any{again.Ready, again.Scheduled, again.Now},
			name)
	}
	require.Equal(t, before, state())
}
