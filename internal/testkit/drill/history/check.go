package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Rule names what a violation breaks.
type Rule string

// The rules. docs/guarantees.md has the promises behind them.
const (
	Lost      Rule = "a job is lost"
	NotPushed Rule = "a job ran whose push did nothing"
	Shared    Rule = "two hold one thing under live leases"
	Returned  Rule = "a job that is over came back"
	Early     Rule = "a job ran before its time"
	SameFence Rule = "a fence was given twice"
	OldFence  Rule = "a later holder has no greater fence"
	Refused   Rule = "the store refuses a holder whose lease lasts"
	Twice     Rule = "a call ran more often than it may"
	Nothing   Rule = "a call has a result and has not run"
	RanAfter  Rule = "a call was refused and has run"
	Ended     Rule = "a call ended as none may"
	Unmoved   Rule = "a scheduled job was not moved"
	Doubled   Rule = "a scheduled job was moved twice"
)

// Violation is a rule that a history breaks, and the records that show it.
type Violation struct {
	Rule    Rule
	Of      string
	Records []int // places in the history
	Text    string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s: %s %v", v.Rule, v.Of, v.Text, v.Records)
}

// slack is how long before a record the lease behind it may have begun: the longest lease of a drill, and the time of a
// machine that stalls.
const slack = 5 * time.Second

// view is a history as the checks read it.
type view struct {
	all     []Record
	steps   []int
	windows []window // of failovers
	drained bool
	found   []Violation
}

// Check returns all violations of a history, in the order of their last records. What is lost can be known only of a
// history that ends with Drained.
func Check(all []Record) []Violation {
	v := &view{all: all, windows: windowsOf(all)}
	things := make(map[string][]int)
	for i, r := range all {
		switch r.Kind {
		case Step:
			v.steps = append(v.steps, i)
		case Drained:
			v.drained = true
		case Fault, Replicated, Failover:
		default:
			things[r.Of] = append(things[r.Of], i)
		}
	}
	for name, places := range things {
		switch {
		case strings.HasPrefix(name, Job):
			v.job(name, places)
		case strings.HasPrefix(name, Lock):
			v.lock(name, places)
		case strings.HasPrefix(name, RPC):
			v.call(name, places)
		case strings.HasPrefix(name, JID):
			v.moved(name, places)
		}
	}
	slices.SortFunc(v.found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(a.Rule, b.Rule))
	})
	return v.found
}

func last(v Violation) int { return slices.Max(append(v.Records, -1)) }

func (v *view) report(rule Rule, of string, records []int, format string, args ...any) {
	records = slices.DeleteFunc(records, func(at int) bool { return at < 0 }) // there is none
	slices.Sort(records)
	v.found = append(v.found, Violation{rule, of, slices.Compact(records), fmt.Sprintf(format, args...)})
}

// shaken reports whether a lease that lasted between two records may have ended early: the server's clock made a step,
// or another server took over that did not know of it.
func (v *view) shaken(from, to int) bool { return v.stepped(from, to) || v.failedOver(from, to) }

// stepped reports whether the server's clock may have made a step between two records, or shortly before the first:
// then leases may have ended early, and jobs may have been due.
func (v *view) stepped(from, to int) bool {
	since, until := v.all[from].At-slack.Microseconds(), v.all[to].At
	for n := 0; n+1 < len(v.steps); n += 2 {
		if v.all[v.steps[n]].At <= until && v.all[v.steps[n+1]].At >= since {
			return true
		}
	}
	return len(v.steps)%2 == 1 && v.all[v.steps[len(v.steps)-1]].At <= until
}
