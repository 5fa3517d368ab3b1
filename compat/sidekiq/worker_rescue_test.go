package sidekiq_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// dies leaves a process behind whose lease is over, with these jobs of the queue default in flight.
func (s *site) dies(process string, payloads ...string) {
	s.t.Helper()
	queue := s.key("queue:default")
	for i, p := range payloads {
		require.NoError(s.t, s.client.HSet(s.t.Context(), s.key("luatomic:sidekiq:working:"+process), i+1,
			strconv.Itoa(len(queue))+":"+queue+p).Err())
	}
	require.NoError(s.t, s.client.ZAdd(s.t.Context(), s.key("luatomic:sidekiq:processes"),
		redis.Z{Member: process, Score: 1}).Err())
}

// rescues runs a worker that serves another queue, until the test calls end.
func (s *site) rescues(opts sidekiq.WorkOptions) (end func() sidekiq.Worked) {
	s.t.Helper()
	opts.Queues, opts.Lease = []sidekiq.Queue{{Name: "other"}}, 300*time.Millisecond
	return s.work(s.d, &opts, content)
}

// forgotten waits until the jobs of a dead process are rescued.
func (s *site) forgotten(process string) {
	s.t.Helper()
	s.eventually(process+" is forgotten", func() bool {
		return errors.Is(s.client.ZScore(s.t.Context(), s.key("luatomic:sidekiq:processes"), process).Err(), redis.Nil)
	})
}

// popped returns the only member of a set and its score, and takes it out.
func (s *site) popped(set string) (member string, score float64) {
	s.t.Helper()
	all := s.members(set)
	require.Len(s.t, all, 1, set)
	require.NoError(s.t, s.client.Del(s.t.Context(), s.key(set)).Err())
	member, _ = all[0].Member.(string)
	return member, all[0].Score
}

// asideParams are those of a call that moves the job of a dead process to a set.
func asideParams(p, set string) script.WorkerAsideParams {
	params := script.WorkerAsideParams{
		Processes: p + "processes", Working: p + "working", Rescued: p + "rescued", To: p + set,
		Processed: p + "processed", ProcessedDay: p + "processed_day", Failed: p + "failed",
		FailedDay: p + "failed_day",
		Process:   "lapsed", ID: 1, Jid: "jid1", Parts: [][]byte{[]byte(`{"jid":"one","failed_at":`), []byte(`}`)},
	}
	if set == "dead" {
		params.Keep, params.Max = time.Hour, 4
	} else {
		params.Delay = time.Minute
	}
	return params
}

// A job that ends each process that performs it is served next once, then waits longer each time, and is dead in the
// end: it is not in the way of other jobs, and does not take one process after the other with it.
func TestAJobWhoseProcessesDieIsSetAside(t *testing.T) {
	t.Parallel()
	for version, stamp := range failureTimes {
		t.Run(strconv.Itoa(int(version)), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, version)
			failures := make(chan error, 10)
			note := func(err error, _ *sidekiq.Delivery) { failures <- err }
			end := s.rescues(sidekiq.WorkOptions{MaxDeaths: 5, OnError: note})
			poison := payload("default", "poison", "")
			s.dies("p1", poison)
			s.forgotten("p1")
			require.Equal(t, []string{poison}, s.list("default"), "after the first death it is served next")
			require.Empty(t, failures)

			text := poison
			for deaths := 2; deaths <= 4; deaths++ {
				process := fmt.Sprint("p", deaths)
				s.dies(process, text)
				s.forgotten(process)
				var score float64
				text, score = s.popped("retry")
				require.Regexp(t, `"error_message":"[^"]*: `+strconv.Itoa(deaths)+
					` so far[^"]*","error_class":"WorkerDied",`+
					`"failed_at":`+stamp+`,"retry_count":`+strconv.Itoa(deaths-2), text)
				least := 15 + math.Pow(float64(deaths-2), 4)
				require.InDelta(t, float64(time.Now().Unix())+least+15, score, 16, "Sidekiq's formula and jitter")
				require.ErrorIs(t, <-failures, sidekiq.ErrWorkerDied)
			}
			s.dies("p5", text)
			s.forgotten("p5")
			text, _ = s.popped("dead")
			require.Contains(t, text, `"error_class":"WorkerDied"`)
			require.Equal(t, []string{poison}, s.list("default"))
			require.Equal(t, 4, s.count("stat:failed"))
			require.Zero(t, s.client.Exists(t.Context(), s.key("luatomic:sidekiq:rescued")).Val(),
				"who brings it back from the dead set has found the reason")
			require.Equal(t, sidekiq.Worked{Rescued: 5}, end())
		})
	}
}

// The jobs that died with it are counted too, each by itself, and none of them is lost: neither one that is not
// retried, nor one without a jid, nor what is no job.
func TestTheJobsBesideOneThatKillsArePutBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	end := s.rescues(sidekiq.WorkOptions{})
	never := `{"class":"HardJob","args":[],"queue":"default","retry":false,"dead":false,"jid":"never"}`
	nameless := `{"class":"HardJob","args":[],"queue":"default"}`
	s.dies("p1", "no job", never, nameless)
	s.forgotten("p1")
	require.Equal(t, []string{nameless, never, "no job"}, s.list("default"))
	ttl, err := s.client.TTL(t.Context(), s.key("luatomic:sidekiq:rescued")).Result()
	require.NoError(t, err)
	require.InDelta(t, 72*time.Hour, ttl, float64(time.Minute))

	s.dies("p2", "no job", never, nameless, payload("default", "new", ""))
	s.forgotten("p2")
	require.Equal(t, []string{payload("default", "new", ""), "no job"}, s.list("default")[3:])
	require.Len(t, s.members("retry"), 2)
	require.Equal(t, sidekiq.Worked{Rescued: 7}, end())
}

// A job without a jid is the same job when a failure has written its fields, and a move its time.
func TestAJobWithoutAJIDThatKillsIsSetAside(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	end := s.rescues(sidekiq.WorkOptions{MaxDeaths: 4})
	text := `{"class":"HardJob","args":[1, "\u00e9"],"queue":"default","created_at":1795230010.5}`
	s.dies("p1", text)
	s.forgotten("p1")
	require.Len(t, s.list("default"), 1)
	for _, process := range []string{"p2", "p3"} {
		s.dies(process, text)
		s.forgotten(process)
		text, _ = s.popped("retry")
		text = strings.TrimSuffix(text, "}") + `,"enqueued_at":179523001` + strings.TrimPrefix(process, "p") + ".5}"
	}
	s.dies("p4", text)
	s.forgotten("p4")
	text, _ = s.popped("dead")
	require.Contains(t, text, "WorkerDied")
	require.Equal(t, sidekiq.Worked{Rescued: 4}, end())
}

// Jobs that look the same, as they have no jid, die with as many processes as there were, not jobs.
func TestJobsThatLookTheSameCountOneDeath(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	end := s.rescues(sidekiq.WorkOptions{MaxDeaths: 3})
	same := `{"class":"HardJob","args":[],"queue":"default"}`
	s.dies("p1", same, same, same, same)
	s.forgotten("p1")
	s.dies("p2", same)
	s.forgotten("p2")
	s.popped("retry")
	require.Empty(t, s.members("dead"))
	require.Equal(t, sidekiq.Worked{Rescued: 5}, end())
}

// A set that cannot be written to keeps the other jobs of a dead process from nothing.
func TestASetThatIsRefusedKeepsNoOtherJobsOfADeadProcess(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	require.NoError(t, s.client.HSet(t.Context(), s.key("luatomic:sidekiq:rescued"), "again", 1).Err())
	require.NoError(t, s.client.Set(t.Context(), s.key("retry"), "no set", 0).Err())
	s.dies("p1", payload("default", "again", ""), payload("default", "new", ""))
	end := s.rescues(sidekiq.WorkOptions{})
	s.eventually("the other is in its queue", func() bool { return len(s.list("default")) == 1 })
	require.NoError(t, s.client.Del(t.Context(), s.key("retry")).Err())
	s.forgotten("p1")
	require.Len(t, s.members("retry"), 1)
	require.Equal(t, sidekiq.Worked{Rescued: 2}, end())
}

// A process that ends in order did not die of its jobs.
func TestAnOrderlyEndCountsNoDeath(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	p := luatomictest.Namespace(t) + ":"
	require.NoError(t, handed(ctx, c, p))
	params := returnParams(p, "alive", 1)
	params.Lapsed = false
	_, err := script.WorkerReturn(ctx, c, params)
	require.NoError(t, err)
	require.Zero(t, c.Exists(ctx, p+"rescued").Val())
}

func TestTheCountsOfDeathsAreBounded(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	for counts, left := range map[int]int64{9999: 10000, 10000: 1} {
		for _, last := range []string{"return", "aside"} {
			p := luatomictest.Namespace(t) + ":"
			require.NoError(t, handed(ctx, c, p))
			old := make([]any, 0, 2*counts)
			for i := range counts {
				old = append(old, i, 1)
			}
			require.NoError(t, c.HSet(ctx, p+"rescued", old...).Err())
			var err error
			if last == "return" {
				_, err = script.WorkerReturn(ctx, c, returnParams(p, "lapsed", 1))
			} else {
				_, err = script.WorkerAside(ctx, c, asideParams(p, "retry"))
			}
			require.NoError(t, err)
			require.Equal(t, left, c.HLen(ctx, p+"rescued").Val())
			require.Equal(t, "1", c.HGet(ctx, p+"rescued", "jid1").Val())
		}
	}
}

func TestAsideTakesNothingFromTheLiving(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	p := luatomictest.Namespace(t) + ":"
	require.NoError(t, handed(ctx, c, p))
	before := workState(ctx, c, p)
	params := asideParams(p, "dead")
	params.Process = "alive"
	r, err := script.WorkerAside(ctx, c, params)
	require.NoError(t, err)
	require.Equal(t, script.WorkerAsideResultAlive, r)
	require.Equal(t, before, workState(ctx, c, p))

	params.Process = "forgotten"
	r, err = script.WorkerAside(ctx, c, params)
	require.NoError(t, err)
	require.Equal(t, script.WorkerAsideResultMoved, r)
	require.Equal(t, []string{"first", "last", "middle"}, workState(ctx, c, p)["dead"],
		"trimmed by age, then the first by score: one less than max are kept")
}

// Processes whose jobs cannot be put back keep none of those behind them from their rescue.
func TestProcessesThatCannotBeEmptiedHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	for i := range 100 {
		process := fmt.Sprintf("a%02d", i)
		s.dies(process)
		require.NoError(t, s.client.HSet(t.Context(), s.key("luatomic:sidekiq:working:"+process), "1",
			"no entry").Err())
	}
	s.dies("b", payload("default", "behind", ""))
	end := s.rescues(sidekiq.WorkOptions{})
	s.forgotten("b")
	s.dies("a", payload("default", "before", ""))
	s.forgotten("a")
	require.Equal(t, sidekiq.Worked{Rescued: 2}, end())
	require.Len(t, s.list("default"), 2)
	require.EqualValues(t, 100, s.client.ZCount(t.Context(), s.key("luatomic:sidekiq:processes"), "1", "1").Val())
}

// Where many processes have died, a rescue over a slow network takes longer than the lease of the rescuer.
func TestARescueOutlastsNoLease(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	for i := range 100 {
		s.dies(fmt.Sprint("p", i), payload("default", fmt.Sprint(i), ""))
	}
	s.rescuesSlowly(func(cmd redis.Cmder) bool { return cmd.Name() == "hkeys" },
		func() bool { return len(s.list("default")) == 100 })
}

// A process that died with many jobs, and not for the first time, has each set aside by a call of its own.
func TestARescueOfManyJobsOutlastsNoLease(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	jobs := make([]string, 100)
	for i := range jobs {
		jobs[i] = payload("default", fmt.Sprint("j", i), "")
		require.NoError(t, s.client.HSet(t.Context(), s.key("luatomic:sidekiq:rescued"), fmt.Sprint("j", i), 1).Err())
	}
	s.dies("p", append(jobs, payload("default", "new", ""))...)
	aside := lab.Digest(&script.WorkerAsideScript)
	s.rescuesSlowly(func(cmd redis.Cmder) bool { return lab.OfScript(cmd, aside) },
		func() bool { return len(s.members("retry")) == 100 && len(s.list("default")) == 1 })
}

// A process that died with jobs of many queues has those of each put back by a call of their own.
func TestARescueOfManyQueuesOutlastsNoLease(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.dies("p")
	for i := range 100 {
		queue := s.key(fmt.Sprint("queue:q", i))
		require.NoError(t, s.client.HSet(t.Context(), s.key("luatomic:sidekiq:working:p"), i+1,
			strconv.Itoa(len(queue))+":"+queue+payload("q", fmt.Sprint(i), "")).Err())
	}
	back := lab.Digest(&script.WorkerReturnScript)
	s.rescuesSlowly(func(cmd redis.Cmder) bool { return lab.OfScript(cmd, back) },
		func() bool { return s.client.SCard(t.Context(), s.key("queues")).Val() == 100 })
}

// rescuesSlowly runs a rescuer until all is done. Its slow calls take 40 ms longer, and none begins when its lease, of
// two seconds, is over.
func (s *site) rescuesSlowly(slow func(redis.Cmder) bool, done func() bool) {
	s.t.Helper()
	processes := s.key("luatomic:sidekiq:processes")
	var over atomic.Int64
	client := luatomictest.Client(s.t)
	client.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		if !slow(cmds[0]) {
			return
		}
		time.Sleep(40 * time.Millisecond)
		now := float64(s.client.Time(context.Background()).Val().UnixMilli())
		for _, p := range s.client.ZRangeWithScores(context.Background(), processes, 0, -1).Val() {
			if p.Score > 1 && p.Score < now {
				over.Add(1)
			}
		}
	}))
	end := s.work(s.dialect(client, sidekiq.V7), &sidekiq.WorkOptions{
		Queues: []sidekiq.Queue{{Name: "other"}}, Lease: 2 * time.Second,
	}, content)
	s.eventually("all are rescued", done)
	end()
	require.Zero(s.t, over.Load(), "the lease of the rescuer was over")
}

// A heartbeat passes over the processes that the one before it could not empty, and over no others: those that it has
// emptied are not there any more.
func TestARescuePassesOverNoneThatItEmptied(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	for i := range 120 {
		s.dies(fmt.Sprint("p", i), payload("default", fmt.Sprint(i), ""))
	}
	beat := lab.Digest(&script.WorkerBeatScript)
	skipped := make(chan string, 1000)
	client := luatomictest.Client(t)
	client.AddHook(lab.Before(func(cmds ...redis.Cmder) {
		if lab.OfScript(cmds[0], beat) {
			skip := reflect.Indirect(reflect.ValueOf(cmds[0].Args()[7])) // behind the process and its lease
			skipped <- fmt.Sprint(skip)
		}
	}))
	end := s.work(s.dialect(client, sidekiq.V7), &sidekiq.WorkOptions{
		Queues: []sidekiq.Queue{{Name: "other"}}, Lease: 3 * time.Second,
	}, content)
	s.eventually("all are rescued", func() bool { return len(s.list("default")) == 120 })
	require.Equal(t, sidekiq.Worked{Rescued: 120}, end())
	close(skipped)
	for n := range skipped {
		require.Equal(t, "0", n)
	}
}

// The scripts that bury a job remove no more than a thousand of the dead, those with the least scores: a bound that was
// lowered does not hold up the server.
func TestABurialTrimsAThousandAtMost(t *testing.T) {
	t.Parallel()
	c, ctx := luatomictest.Client(t), t.Context()
	for _, row := range []struct{ score, most int64 }{{1, 5000}, {time.Now().Unix() - 10, 100}} { // too old, too many
		p := luatomictest.Namespace(t) + fmt.Sprint(row.score) + ":"
		require.NoError(t, handed(ctx, c, p))
		dead := make([]redis.Z, 2500)
		for i := range dead {
			dead[i] = redis.Z{Score: float64(row.score) + float64(i)/1e4, Member: fmt.Sprint("dead", i)}
		}
		require.NoError(t, c.Del(ctx, p+"dead").Err())
		require.NoError(t, c.ZAdd(ctx, p+"dead", dead...).Err())
		aside := asideParams(p, "dead")
		aside.Keep, aside.Max = time.Minute, row.most
		r, err := script.WorkerAside(ctx, c, aside)
		require.NoError(t, err)
		require.Equal(t, script.WorkerAsideResultMoved, r)
		require.EqualValues(t, 1501, c.ZCard(ctx, p+"dead").Val())
		require.Equal(t, []string{"dead1000"}, c.ZRange(ctx, p+"dead", 0, 0).Val())
	}
}
