package history

// span is what one process held: the places of its records, and the first and last of which a later record says that
// the lease lasted then; -1 when none does.
type span struct {
	by          string
	n           uint64
	records     []int
	first, last int
}

// lasted reports that the lease lasted at some time.
func (s *span) lasted() bool { return s.last >= 0 }

// spans returns the spans among the records, in the order of their first records.
func (v *view) spans(places []int) []*span {
	type key struct {
		by string
		n  uint64
	}
	var all []*span
	known := make(map[key]*span)
	for _, at := range places {
		r := v.all[at]
		if r.Span == 0 {
			continue
		}
		k := key{r.By, r.Span}
		s := known[k]
		if s == nil {
			s = &span{by: r.By, n: r.Span, first: -1, last: -1}
			known[k] = s
			all = append(all, s)
		}
		if n := len(s.records); n > 0 && r.Held {
			s.last = s.records[n-1]
			if s.first < 0 {
				s.first = s.last
			}
		}
		s.records = append(s.records, at)
	}
	return all
}

// apart reports each two spans of which one lasted while the other did.
func (v *view) apart(of string, spans []*span) {
	var open []*span // those that may overlap one that begins later
	for _, s := range byFirst(spans) {
		kept := open[:0]
		for _, other := range open {
			if other.last <= s.first {
				continue
			}
			kept = append(kept, other)
			// The one that began first had a live lease before and after the other's first record.
			if !v.shaken(other.records[0], s.first) {
				v.report(Shared, of, []int{other.first, s.first, other.last, s.last}, "%s and %s", other.by, s.by)
			}
		}
		open = append(kept, s)
	}
}

// call checks one request of RPC: a call of the method again may run once for each attempt, any other once.
func (v *view) call(of string, places []int) {
	call, end := -1, -1
	var runs []int
	attempts := make(map[int64]int)
	for _, at := range places {
		switch r := v.all[at]; r.Kind {
		case Call:
			call = at
		case End:
			end = at
		case Run:
			if other, twice := attempts[r.N]; twice {
				v.report(Twice, of, []int{other, at}, "attempt %d", r.N)
			} else if len(runs) > 0 && (call < 0 || v.all[call].Text != Again) {
				v.report(Twice, of, []int{runs[0], at}, "attempts %d and %d", v.all[runs[0]].N, r.N)
			}
			attempts[r.N] = at
			runs = append(runs, at)
		}
	}
	if end < 0 {
		return // its caller died
	}
	switch text := v.all[end].Text; {
	case text == OK && (len(runs) == 0 || runs[0] > end):
		v.report(Nothing, of, []int{end}, "")
	case text == Not && len(runs) > 0:
		v.report(RanAfter, of, append(runs, end), "")
	case text != OK && text != Not && text != Unknown:
		v.report(Ended, of, []int{end}, "%s", text)
	}
}

// Again is the method whose calls may run once for each attempt.
const Again = "again"

// moved checks one scheduled job of Sidekiq: when all are due and moved, its queue has it once.
func (v *view) moved(of string, places []int) {
	said, schedule := "", -1
	var found []int
	for _, at := range places {
		switch r := v.all[at]; r.Kind {
		case Schedule:
			schedule = at
		case Scheduled:
			said = r.Text
		case Found:
			found = append(found, at)
		}
	}
	switch {
	case v.drained && said == OK && len(found) == 0:
		v.report(Unmoved, of, []int{schedule}, "")
	case said == Not && len(found) > 0:
		v.report(NotPushed, of, append(found, schedule), "")
	case len(found) > 1:
		v.report(Doubled, of, found, "%d times", len(found))
	}
}
