package main

import (
	"context"
	"time"

	"github.com/luatomic/luatomic/internal/operate"
	"github.com/luatomic/luatomic/queue"
)

// rates are how fast queues move, from what was counted before.
type rates struct {
	counters operate.Meter
	sizes    operate.Meter // they also fall
}

func newRates() *rates { return &rates{sizes: operate.Meter{Signed: true}} }

// queueRates are null while too little is known.
type queueRates struct {
	Pushed    *float64 `json:"pushed_per_second"`
	Processed *float64 `json:"processed_per_second"`
	Failed    *float64 `json:"failed_per_second"`
}

// of are the rates of a queue that has these jobs. The server does not count pushes: what was pushed is in the queue,
// was processed or has expired.
func (r *rates) of(ctx context.Context, q *queue.Queue, st queue.Stats) (out queueRates, err error) {
	days, err := q.Counts(ctx, 1)
	if err != nil || len(days) == 0 {
		return out, err
	}
	today := days[0]
	return r.at(time.Now(), q.Tag()+"\n"+q.Name(), st, today), nil
}

func (r *rates) at(now time.Time, name string, st queue.Stats, today queue.DayCounts) (out queueRates) {
	count := func(what string, n int) *float64 { // the counts of a day begin at 0
		return known(r.counters.Rate(name+"\n"+what+today.Day, int64(n), now))
	}
	out.Processed, out.Failed = count("p", today.Processed), count("f", today.Failed)
	expired := count("x", today.Expired)
	growth := known(r.sizes.Rate(name, int64(st.Ready+st.Scheduled+st.Leased+st.Dead), now))
	if growth != nil && out.Processed != nil && expired != nil {
		pushed := round(max(*growth+*out.Processed+*expired, 0))
		out.Pushed = &pushed
	}
	return out
}

// known is a rate with one digit, or nil.
func known(rate float64, ok bool) *float64 {
	if !ok {
		return nil
	}
	if rate >= 0 {
		rate = round(rate)
	}
	return &rate
}

// orNone is a number as a table shows it.
func orNone(n *float64) any {
	if n == nil {
		return "-"
	}
	return *n
}
