package history

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
