package sidekiq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/luatomic/luatomic/compat/sidekiq/internal/script"
	"github.com/luatomic/luatomic/internal/exact"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/lua"
)

// MaxBatch is the limit of jobs in one step. The payloads of several jobs together have a limit of 896 KiB.
const MaxBatch = 1000

// Limits of the bytes of a call, which may have 1 MiB. maxStep leaves space for the plan, the times and keys of up to
// usualKey bytes; what a key has beyond that counts. maxAlone is the limit of one job and the key of its queue.
const (
	maxStep  = 1<<20 - 128<<10
	usualKey = 48
	maxAlone = 1<<20 - 512
)

// ErrSplit reports that a push under a token does not fit in one step. Split over several, a retry could not be
// recognized.
var ErrSplit = errors.New("sidekiq: more than one step can push")

// ErrTokenReused reports that a push under a token has other jobs than the first push under that token. Nothing was
// pushed: the answer of the first push would say that these jobs are in.
var ErrTokenReused = errors.New("sidekiq: the token belongs to other jobs: use another token, or pass the jobs of " +
	"the first push in their order, with the same queues, classes, arguments and JIDs")

// Pushed is the result of a push.
type Pushed struct {
	// JIDs are the ids, in the order of the jobs. With an error, they are the ids of the jobs that are certainly
	// pushed.
	JIDs []string
	// Ready jobs went into their queues, Scheduled ones into the schedule.
	Ready, Scheduled int
	// Now is the server's time of the last step.
	Now time.Time
}

// Push puts one job into its queue, or into the schedule if it is for later, and returns its id. Keys: queues,
// schedule and the job's queue:<name>. Cost: O(1), for later O(log n). enqueued_at is the server's clock, read in the
// script.
//
// When the reply is lost, the job may or may not have been pushed. The error is lua.ErrOutcomeUnknown and nothing is
// sent again: a second Push could add the job twice. PushOnce can be retried. Errors before anything is sent: ErrClass,
// ErrArgs, ErrEncoding, ErrField, ErrNumber, ErrTime, ErrPayload, lua.ErrTooLarge.
func (d *Dialect) Push(ctx context.Context, job Job) (jid string, err error) {
	pushed, err := d.PushBulk(ctx, []Job{job})
	if err != nil {
		return "", err
	}
	return pushed.JIDs[0], nil
}

// PerformAt pushes the job for a time. See Push, and Options.ExactTimes for the microseconds.
func (d *Dialect) PerformAt(ctx context.Context, at time.Time, job Job) (jid string, err error) {
	job.At, job.In = at, 0
	return d.Push(ctx, job)
}

// PerformIn pushes the job for a time from now, by the server's clock. See Push, and Options.ExactTimes for the
// microseconds.
func (d *Dialect) PerformIn(ctx context.Context, in time.Duration, job Job) (jid string, err error) {
	job.At, job.In = time.Time{}, in
	return d.Push(ctx, job)
}

// PushBulk pushes jobs of any queues, now and for later, in as few steps as MaxBatch and 896 KiB allow. A step is one
// script: all of its jobs are pushed or none. All jobs are checked before the first step. Each queue gets its jobs in
// their order. In a step of at least 100 jobs, enqueued_at is the server's clock to 5 ms. See Push for the keys and
// errors. After an error the result has the jobs, from the first on, that are certainly pushed; after
// lua.ErrOutcomeUnknown the outcome of the next step is unknown.
func (d *Dialect) PushBulk(ctx context.Context, jobs []Job) (Pushed, error) {
	drafts, jids, err := d.drafts(jobs)
	var out Pushed
	for err == nil && len(drafts) > 0 {
		n := d.step(drafts)
		var r script.PushResult
		sent := time.Now()
		d.schedule(drafts[:n])
		d.guess(drafts[:n], sent)
		if r, err = script.Push(ctx, d.client, d.encode(drafts[:n])); err != nil {
			break
		}
		d.clockOffset.Store(r.Now - sent.UnixMicro())
		out.JIDs = jids[:len(out.JIDs)+n]
		out.Ready += int(r.Ready)
		out.Scheduled += int(r.Scheduled)
		out.Now = time.UnixMicro(r.Now)
		drafts = drafts[n:]
	}
	if err != nil {
		return out, fmt.Errorf("sidekiq: push: %w", err)
	}
	return out, nil
}

// PushOnce is PushBulk in one step under a token of the caller's. During keep, a retry with the token adds nothing and
// returns the counts and time of the first push. After a lost reply the push is sent again, and the caller may retry
// too. Pass the same jobs in the same order: other queues, classes, arguments or JIDs are an ErrTokenReused, and push
// nothing. Arguments are compared byte for byte. Those of an ActiveJob contain its ID and EnqueuedAt, so set both.
// Times and further fields may differ; those of the first push count. Set the JIDs of the jobs; otherwise a retry
// returns other JIDs than those that were pushed. Additional key: luatomic:push:<token>, a short string that expires.
// Errors in addition to those of PushBulk: ErrSplit, ErrTokenReused, lua.ErrBadName.
func (d *Dialect) PushOnce(ctx context.Context, token string, keep time.Duration, jobs []Job) (Pushed, error) {
	out, err := d.pushOnce(ctx, token, keep, jobs)
	if err != nil {
		return Pushed{}, fmt.Errorf("sidekiq: push: %w", err)
	}
	return out, nil
}

func (d *Dialect) pushOnce(ctx context.Context, token string, keep time.Duration, jobs []Job) (out Pushed, err error) {
	if err := keys.CheckSecret("token", token); err != nil {
		return out, err
	}
	drafts, jids, err := d.drafts(jobs)
	if err != nil || len(drafts) == 0 {
		return out, err
	}
	if d.step(drafts) != len(drafts) {
		return out, fmt.Errorf("%w: %d jobs; use a token for each part", ErrSplit, len(drafts))
	}
	out.JIDs = jids
	d.schedule(drafts)
	p := d.encode(drafts)
	r, err := script.PushOnce(ctx, d.client, script.PushOnceParams{
		Receipt: d.key("luatomic:push:" + token), Names: p.Names, Schedule: p.Schedule, Queues: p.Queues,
		Keep: keep, Skip: p.Skip, Clock: script.PushOnceClock(p.Clock), Plan: p.Plan,
		Digest: jobsDigest(jobs), Jobs: p.Jobs,
	})
	if errors.Is(err, script.ErrPushOnceReused) {
		return out, fmt.Errorf("%w: %w", ErrTokenReused, err)
	}
	out.Ready, out.Scheduled, out.Now = int(r.Ready), int(r.Scheduled), time.UnixMicro(r.Now)
	return out, err
}

// jobsDigest returns the sum of what the jobs under a token are, as given: their queues, classes, arguments and ids. It
// leaves out what a program that repeats the push works out anew: times, and fields such as a trace context.
func jobsDigest(jobs []Job) string {
	sum := exact.NewSum()
	sum.Count(len(jobs))
	for i := range jobs {
		job := &jobs[i]
		if job.Payload != nil {
			job = comparedFields(job.Payload)
		}
		sum.Add(cmp.Or(job.Queue, "default"), job.Class, cmp.Or(string(job.Args), "[]"), job.JID)
	}
	return sum.String()
}

// comparedFields returns those fields of a checked payload that a token stands for.
func comparedFields(payload []byte) *Job {
	var job Job
	_ = members(payload, func(m member) {
		switch name := string(m.name); name {
		case "queue", "class", "args", "jid":
			_ = job.take(name, payload[m.value:m.end:m.end])
		}
	})
	return &job
}

// drafts checks the jobs and writes their payloads. The ids share one string.
func (d *Dialect) drafts(jobs []Job) (drafts []draft, jids []string, err error) {
	src := source{now: d.appendTime(nil, time.Now()), jids: make([]byte, 0, 24*len(jobs))}
	size := 0
	for i := range jobs {
		if jobs[i].Payload == nil {
			size += len(jobs[i].Class) + len(jobs[i].Queue) + len(jobs[i].Args) + 160 + room
		}
	}
	src.text = make([]byte, 0, size)
	drafts = make([]draft, len(jobs))
	for i := range jobs {
		if drafts[i], err = d.draft(&jobs[i], &src); err == nil {
			err = d.checkSize(&drafts[i])
		}
		if err != nil {
			return nil, nil, fmt.Errorf("job %d: %w", i, err)
		}
	}
	jids = make([]string, len(jobs))
	all, from := string(src.jids), 0
	for i := range drafts {
		jids[i] = all[from:drafts[i].jid]
		from = drafts[i].jid
	}
	return drafts, jids, nil
}

// A step of at least guessFrom jobs carries an estimate of the server's time, which the script keeps when it is off
// by at most slack. Writing the time into every payload would double the script's run time. room is reserved for the
// estimate.
const (
	guessFrom = 100
	slack     = 5 * time.Millisecond
	room      = len(`,"enqueued_at":1234567890123456.123456}`)
)

// guess writes enqueued_at into the drafts that have room for it, from the server's clock in the previous push.
func (d *Dialect) guess(drafts []draft, now time.Time) {
	clockOffset := d.clockOffset.Load()
	if clockOffset == 0 || len(drafts) < guessFrom {
		return
	}
	at := time.UnixMicro(now.UnixMicro() + clockOffset)
	stamped := append(d.appendTime([]byte(`,"enqueued_at":`), at), '}')
	kind := fmt.Sprintf("~%d,%d", len(stamped), at.UnixMicro())
	for i := range drafts {
		if w := &drafts[i]; w.kind == "" && cap(w.text)-len(w.text) >= len(stamped) {
			w.text, w.kind = append(w.text, stamped...), kind
		}
	}
}

// checkSize refuses a job that is too large for any call, before the first is sent.
func (d *Dialect) checkSize(w *draft) error {
	if n := len(w.text) + d.keySize(w); n > maxAlone {
		return &lua.SizeError{What: "payload and key of its queue", N: n, Max: maxAlone, Unit: "bytes"}
	}
	return nil
}

// keySize is the length of the key of a draft's queue.
func (d *Dialect) keySize(w *draft) int { return len(d.prefix) + len("queue:") + len(w.queue) }

// step returns how many of the drafts go into one call, at least one.
func (d *Dialect) step(drafts []draft) int {
	size := 0
	for i := range min(len(drafts), MaxBatch) {
		size += len(drafts[i].text)
		if i == 0 || drafts[i].queue != drafts[i-1].queue {
			size += max(d.keySize(&drafts[i])-usualKey, 0)
		}
		if size > maxStep && i > 0 {
			return i
		}
	}
	return min(len(drafts), MaxBatch)
}

// encode returns the script's parameters: the drafts grouped by queue, in their order, and a plan of the runs of one
// kind.
func (d *Dialect) encode(drafts []draft) script.PushParams {
	p := script.PushParams{
		Names: d.key("queues"), Schedule: d.key(string(Schedule)), Queues: make([]string, 0, 1),
		Skip: int64(len(d.queueKey(""))), Slack: slack.Microseconds(), Jobs: make([][]byte, 0, len(drafts)),
	}
	if d.milliseconds() {
		p.Clock = script.PushClockMilliseconds
	}
	places := make([]int, len(drafts)) // of each draft's queue, from 1
	known := make(map[string]int, 1)
	for i := range drafts {
		if i > 0 && drafts[i].queue == drafts[i-1].queue {
			places[i] = places[i-1]
			continue
		}
		if known[drafts[i].queue] == 0 {
			p.Queues = append(p.Queues, d.queueKey(drafts[i].queue))
			known[drafts[i].queue] = len(p.Queues)
		}
		places[i] = known[drafts[i].queue]
	}
	order := make([]int, len(drafts))
	for i := range order {
		order[i] = i
	}
	if len(p.Queues) > 1 {
		slices.SortStableFunc(order, func(a, b int) int { return places[a] - places[b] })
	}
	var plan []byte
	run := 0
	for at, i := range order {
		p.Jobs = append(p.Jobs, drafts[i].text)
		run++
		if at+1 < len(order) && places[order[at+1]] == places[i] && drafts[order[at+1]].kind == drafts[i].kind {
			continue
		}
		plan = appendRun(plan, places[i], run, drafts[i].kind)
		run = 0
	}
	p.Plan = string(plan)
	return p
}

func appendRun(plan []byte, place, count int, kind string) []byte {
	plan = append(strconv.AppendInt(plan, int64(place), 10), ':')
	plan = append(strconv.AppendInt(plan, int64(count), 10), ':')
	return append(append(plan, kind...), ';')
}
