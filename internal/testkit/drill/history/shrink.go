package history

import "slices"

// Shrink returns the smallest part of a history that it finds in which the same records break the same rule: no record
// of it can be left out.
func Shrink(all []Record, v Violation) []Record {
	var places []int
	for i, r := range all {
		if r.Of == v.Of || r.Kind == Step || r.Kind == Drained {
			places = append(places, i)
		}
	}
	for size := max(1, len(places)/2); ; size /= 2 {
		for from := 0; from < len(places); {
			fewer := slices.Concat(places[:from], places[min(from+size, len(places)):])
			if shows(all, fewer, v) {
				places = fewer
			} else {
				from += size
			}
		}
		if size == 1 {
			return at(all, places)
		}
	}
}

// shows reports whether the records at these places alone show the violation.
func shows(all []Record, places []int, v Violation) bool {
	for _, found := range Check(at(all, places)) {
		if found.Rule != v.Rule || found.Of != v.Of || len(found.Records) != len(v.Records) {
			continue
		}
		same := true
		for i, n := range found.Records {
			same = same && places[n] == v.Records[i]
		}
		if same {
			return true
		}
	}
	return false
}

func at(all []Record, places []int) []Record {
	out := make([]Record, len(places))
	for i, n := range places {
		out[i] = all[n]
	}
	return out
}
