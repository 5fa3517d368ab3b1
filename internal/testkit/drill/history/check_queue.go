package history

import (
	"cmp"
	"slices"
	"time"
)

// byFirst returns the spans that lasted at some time, in the order in which they did.
func byFirst(spans []*span) []*span {
	lasted := slices.DeleteFunc(slices.Clone(spans), func(s *span) bool { return !s.lasted() })
	slices.SortFunc(lasted, func(a, b *span) int { return cmp.Compare(a.first, b.first) })
	return lasted
}

// life is what a history says of one job: places of records, -1 where there is none.
type life struct {
	push, pushed, done, acked int
	// cancelled is when the job was known to be cancelled, and had no worker then.
	cancelled int
	// cancels are those that may have had an effect.
	cancels int
}

func (v *view) lifeOf(places []int) life {
	l := life{push: -1, pushed: -1, done: -1, acked: -1, cancelled: -1}
	for _, at := range places {
		switch r := v.all[at]; r.Kind {
		case Push:
			l.push = at
		case Pushed:
			l.pushed = at
		case Done:
			l.done = at
		case Acked:
			if l.acked < 0 {
				l.acked = at
			}
		case Cancel:
			l.cancels++
		case Cancelled:
			switch r.Text {
			case Not, "absent":
				l.cancels--
			case "ready", "scheduled", "dead":
				l.cancelled = at
			}
		}
	}
	return l
}

// job checks one job.
func (v *view) job(of string, places []int) {
	l, spans := v.lifeOf(places), v.spans(places)
	var started []int
	for _, s := range spans {
		started = append(started, s.records[0])
	}
	said := ""
	if l.pushed >= 0 {
		said = v.all[l.pushed].Text
	}
	if v.drained && l.done < 0 && l.cancels == 0 && (said == OK || len(spans) > 0) && !v.forgotten(l, started) {
		v.report(Lost, of, append(started, max(l.pushed, l.push)), "%d deliveries, none of which is done", len(spans))
	}
	if said == Not && len(spans) > 0 {
		v.report(NotPushed, of, append(started, l.pushed), "")
	}
	v.apart(of, spans)
	if !v.forgotten(l, started) { // else the push that is sent again adds a job that no server knew to be over
		v.over(of, spans, v.before(places, Done, l.acked), l.acked)
		v.over(of, spans, v.before(places, Cancel, l.cancelled), l.cancelled)
	}
	if l.push >= 0 && len(spans) > 0 {
		due := v.all[l.push].At + v.all[l.push].N*time.Millisecond.Microseconds()
		if first := v.all[started[0]]; first.At < due && !v.stepped(l.push, started[0]) {
			v.report(Early, of, []int{l.push, started[0]}, "%d us", due-first.At)
		}
	}
}

// forgotten reports whether a failover may have undone the push of a job: the server had it when it confirmed the push,
// or else when it gave the job to a worker.
func (v *view) forgotten(l life, started []int) bool {
	if l.pushed >= 0 && v.all[l.pushed].Text == OK {
		return v.undone(l.push, l.pushed)
	}
	return len(started) > 0 && v.undone(l.push, started[0])
}

// before returns the last place before another that has a record of the kind, -1 when there is none.
func (v *view) before(places []int, kind Kind, at int) int {
	last := -1
	for _, place := range places {
		if place < at && v.all[place].Kind == kind {
			last = place
		}
	}
	return last
}

// over reports deliveries whose lease lasted when the job was already over: an end was asked for, and confirmed since.
func (v *view) over(of string, spans []*span, asked, since int) {
	if since < 0 || v.undone(asked, since) {
		return
	}
	for _, s := range spans {
		// What was over and replicated is delivered by no server. A delivery from before may outlast a failover.
		if s.last > since && !v.stepped(min(s.records[0], since), s.last) &&
			(s.records[0] > since || !v.failedOver(s.records[0], s.last)) {
			v.report(Returned, of, []int{s.records[0], since, s.last}, "%s has it", s.by)
		}
	}
}
