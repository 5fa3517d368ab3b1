package web

import "github.com/luatomic/luatomic/queue"

// verb is something that can be done to jobs of a state.
type verb struct {
	Name, Label string
	// Sure: it can be undone by hand, so one job needs no question.
	Sure bool
}

// verbsOf are what can be done to jobs of that state. A leased job is its worker's.
func verbsOf(state queue.State) []verb {
	switch state {
	case queue.Dead:
		return []verb{{"requeue", "Requeue", true}, {"delete", "Delete", false}}
	case queue.Scheduled:
		return []verb{{"reschedule", "Reschedule", true}, {"bury", "Bury", true}, {"cancel", "Cancel", false}}
	case queue.Ready:
		return []verb{{"bury", "Bury", true}, {"cancel", "Cancel", false}}
	}
	return nil
}
