package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/servers"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

// doctorQueues is how many queues doctor looks at.
const doctorQueues = 500

// unserved is a queue with jobs that no process works on.
type unserved struct {
	queue *queue.Queue
	st    queue.Stats
}

// examineQueues looks for jobs that no process works on: leases that have ended and that no consumer takes back, and
// jobs of a queue that no process consumes.
func (p *probeUse) examineQueues(ctx context.Context) checkResult {
	r := checkResult{Check: "queues"}
	all, err := queue.Queues(ctx, p.client, &queue.Options{Prefix: p.prefix})
	processes, unread := queue.Workers(ctx, p.client, p.prefix)
	if err = errors.Join(err, unread); err != nil {
		r.Detail = "not read: " + oneLine(err)
		return r
	}
	looked := all[:min(len(all), doctorQueues)]
	stats := make([]queue.Stats, len(looked))
	errs := servers.EachQueue(ctx, p.client, looked, func(ctx context.Context, i int) (err error) {
		stats[i], err = looked[i].Stats(ctx)
		return err
	})
	var lapsed, idle []unserved
	for i, q := range looked {
		switch u := (unserved{q, stats[i]}); {
		case errs[i] != nil: // luatomic queues ls says why
		case u.st.Lapsed > 0:
			lapsed = append(lapsed, u)
		case waiting(u.st) && q.ConsumedBy(processes) == 0:
			idle = append(idle, u)
		}
	}
	r.judge(len(all), lapsed, idle)
	return r
}

// judge fails for leases that have ended, and warns of jobs that wait: what consumes them may be started later.
func (r *checkResult) judge(queues int, lapsed, idle []unserved) {
	ok, cure := len(lapsed) == 0, ""
	var said []string
	if len(lapsed) > 0 {
		first := lapsed[0]
		said = append(said, fmt.Sprintf("%s with leases that have ended and that nobody takes back, the first %q: %d",
			several(len(lapsed), "queue"), first.queue.Name(), first.st.Lapsed))
		cure = "start a consumer, or luatomic jobs reclaim " + argument(first.queue)
	}
	if len(idle) > 0 {
		first := idle[0]
		said = append(said, fmt.Sprintf("%s with jobs that nobody consumes, the first %q: %d ready",
			several(len(idle), "queue"), first.queue.Name(), first.st.Ready))
		if cure == "" {
			cure = "start a consumer of it; luatomic queues ls lists the others"
		}
	}
	r.OK, r.Detail = &ok, strings.Join(said, "; ")
	if cure != "" {
		r.Cure = &cure
		return
	}
	r.Detail = "no lease has ended unseen, and no job waits without a consumer, in " + several(queues, "queue")
}

// What an id that a queue knows after the end of its job takes in Redis, about, and the part of maxmemory, in percent,
// from which doctor warns of all of them.
const (
	knownIDBytes = 140
	knownIDsWarn = 10
)

// examineIDs says how many ids the queues know after the end of their jobs, and about how many bytes these take: no
// other line shows what a queue needs that is empty.
func (p *probeUse) examineIDs(ctx context.Context) checkResult {
	r, ok := checkResult{Check: "ids"}, true
	all, err := queue.Queues(ctx, p.client, &queue.Options{Prefix: p.prefix})
	if err != nil {
		r.Detail = "not read: " + oneLine(err)
		return r
	}
	looked := all[:min(len(all), doctorQueues)]
	counts := make([]int64, len(looked))
	errs := servers.EachQueue(ctx, p.client, looked, func(ctx context.Context, i int) error {
		k, err := keys.NewQueue(p.prefix, looked[i].Tag(), looked[i].Name())
		if err == nil {
			counts[i], err = servers.Read(ctx, p.client, redis.NewIntCmd(ctx, "zcard", k.Finished)).Result()
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		r.Detail = "not read: " + oneLine(err)
		return r
	}
	var sum int64
	most := 0
	for i, n := range counts {
		sum += n
		if n > counts[most] {
			most = i
		}
	}
	r.OK = &ok
	r.Detail = fmt.Sprintf("%s of ended jobs known in %s, about %.1f MB in Redis", several(int(sum), "id"),
		several(len(looked), "queue"), float64(sum*knownIDBytes)/1e6)
	if share := p.shareOfMemory(ctx, sum*knownIDBytes); share >= knownIDsWarn {
		cure := fmt.Sprintf("most are of %q: set a shorter Options.Receipt in its consumers, or leave the ids of its "+
			"jobs to the push", looked[most].Name())
		r.Detail, r.Cure = fmt.Sprintf("%s, %d %% of maxmemory", r.Detail, share), &cure
	}
	return r
}

// shareOfMemory is that many bytes in percent of maxmemory; 0 where there is none, or where it cannot be read.
func (p *probeUse) shareOfMemory(ctx context.Context, bytes int64) int64 {
	info, err := servers.Read(ctx, p.client, redis.NewStringCmd(ctx, "info", "memory")).Result()
	_, rest, found := strings.Cut(info, "\nmaxmemory:")
	text, _, _ := strings.Cut(rest, "\r")
	limit, unread := strconv.ParseInt(text, 10, 64)
	if err != nil || !found || unread != nil || limit <= 0 {
		return 0
	}
	return bytes * 100 / limit
}

// several is a number of things by their name.
func several(n int, name string) string {
	if n == 1 {
		return "1 " + name
	}
	return fmt.Sprintf("%d %ss", n, name)
}

// readsQueues reports whether a program of the roles may read what is in the queues.
func (p *probeUse) readsQueues() bool {
	return p.does(luatomic.RoleProducer, luatomic.RoleConsumer, luatomic.RolePage)
}

// How long a loss of data and a restart are shown.
const (
	lostFor    = 24 * time.Hour
	restartFor = time.Hour
)

// historyText says what the server has been through, as far as that is not long ago, and what to do about it.
func historyText(ctx context.Context, client lua.Client, prefix string) (text, cure string, err error) {
	h, err := queue.ReadHistory(ctx, client, prefix)
	switch {
	case err != nil:
	case !h.Lost.IsZero() && h.Now.Sub(h.Lost) <= lostFor:
		text = "the server has lost data: " + ago(h.Lost, h.Now) + " a consumer found that its reports were gone"
		if !h.Started.IsZero() {
			text += "; the server was started " + ago(h.Started, h.Now)
		}
		cure = "push again what is missing; a restart without persistence, a failover, an eviction and FLUSHALL do " +
			"that: the checks above have the settings"
	case h.Restarted && h.Now.Sub(h.Started) <= restartFor:
		text = "the server was restarted " + ago(h.Started, h.Now) + ", and has the reports of before"
		cure = "read its log for the cause; what it had not saved is gone: luatomic queue audit finds parts of jobs"
	}
	return text, cure, err
}

// examineData warns of a loss of data in the last day, and of a restart in the last hour.
func (p *probeUse) examineData(ctx context.Context) checkResult {
	r, ok := checkResult{Check: "data"}, true
	text, cure, err := historyText(ctx, p.client, p.prefix)
	switch {
	case err != nil:
		r.Detail = "not read: " + oneLine(err)
		return r
	case text != "":
		r.Cure = &cure
	default:
		text = "no consumer has found a loss of data in the last day, and no restart is seen in the last hour"
	}
	r.OK, r.Detail = &ok, text
	return r
}
