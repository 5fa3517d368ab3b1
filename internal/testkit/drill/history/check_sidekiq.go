package history

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
