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
