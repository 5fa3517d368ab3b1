package history

// lock checks the leases of one lock.
func (v *view) lock(of string, places []int) {
	spans := v.spans(places)
	v.apart(of, spans)
	v.fences(of, places, spans)
	v.store(of, places, spans)
}

// fences wants each fence once, and an acquire that began after a grant to get a greater one.
func (v *view) fences(of string, places []int, spans []*span) {
	asked := make(map[int]int) // the record of a grant to that of its acquire
	for _, s := range spans {
		for _, at := range s.records {
			if v.all[at].Kind == Grant {
				asked[at] = s.records[0]
			}
		}
	}
	given := make(map[int64]int)
	var grants []int
	for _, at := range places {
		r := v.all[at]
		if r.Kind != Grant {
			continue
		}
		if other, twice := given[r.N]; twice {
			v.report(SameFence, of, []int{other, at}, "%d", r.N)
		}
		given[r.N] = at
		grants = append(grants, at)
	}
	// The greatest fence before each grant, in the order of the records.
	greatest := make([]int, len(grants)) // places of the grants with the greatest fences so far
	for i, at := range grants {
		greatest[i] = at
		if i > 0 && v.all[greatest[i-1]].N > v.all[at].N {
			greatest[i] = greatest[i-1]
		}
	}
	for _, at := range grants {
		begun := asked[at]
		before := searchBefore(grants, begun)
		if before < 0 {
			continue
		}
		if top := greatest[before]; v.all[top].N > v.all[at].N {
			v.report(OldFence, of, []int{top, begun, at}, "%d after %d", v.all[at].N, v.all[top].N)
		}
	}
}

// searchBefore returns the index of the last place before the given one, -1 when there is none.
func searchBefore(places []int, at int) int {
	low, high := 0, len(places)
	for low < high {
		if middle := (low + high) / 2; places[middle] < at {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low - 1
}

// store plays the writes back as a store that refuses a fence smaller than the greatest it has seen. It may refuse none
// of a holder whose lease lasts.
func (v *view) store(of string, places []int, spans []*span) {
	live := make(map[int]*span) // writes under a lease that lasted
	for _, s := range spans {
		for _, at := range s.records {
			if v.all[at].Kind == Write && at <= s.last {
				live[at] = s
			}
		}
	}
	top := -1
	for _, at := range places {
		if v.all[at].Kind != Write {
			continue
		}
		switch s := live[at]; {
		case top < 0 || v.all[at].N >= v.all[top].N:
			top = at
		case s != nil && !v.shaken(s.records[0], at):
			v.report(Refused, of, []int{top, at, s.last}, "%s writes with %d after %d", s.by, v.all[at].N, v.all[top].N)
		}
	}
}

// LateWrites counts the writes that a store which compares fences refuses.
func LateWrites(all []Record) (n int) {
	greatest := make(map[string]int64)
	for _, r := range all {
		switch {
		case r.Kind != Write:
		case r.N < greatest[r.Of]:
			n++
		default:
			greatest[r.Of] = r.N
		}
	}
	return n
}
