package history

import "time"

// window is the part of a history that a failover may have undone: what the old master confirmed after the last write
// that a replica is known to have.
type window struct{ from, to int }

// windowsOf returns those of all failovers. One that did not end lasts until the end of the history.
func windowsOf(all []Record) (windows []window) {
	asked, replicated, begun := map[int64]int{}, -1, -1
	for i, r := range all {
		switch {
		case r.Kind == Replicated && r.Text == OK:
			replicated = max(replicated, asked[r.N])
		case r.Kind == Replicated:
			asked[r.N] = i
		case r.Kind == Failover && begun < 0:
			begun = i
			windows = append(windows, window{replicated, len(all)})
		case r.Kind == Failover:
			begun = -1
			windows[len(windows)-1].to = i
			replicated = i
		}
	}
	return windows
}

// undone reports whether a failover may have undone what was asked for after the first record, and confirmed before the
// second. A process can write the second when the failover is over: the reply was on its way.
func (v *view) undone(asked, confirmed int) bool {
	for _, w := range v.windows {
		if w.from < confirmed && asked < w.to {
			return true
		}
	}
	return false
}

// failedOver reports whether a failover may have undone something between two records, or shortly before the first.
func (v *view) failedOver(from, to int) bool {
	since := v.all[from].At - slack.Microseconds()
	for _, w := range v.windows {
		if w.from < to && (w.to >= len(v.all) || v.all[w.to].At >= since) {
			return true
		}
	}
	return false
}

// Losses are what the failovers of a history have undone. It is no violation: Redis confirms before it replicates.
type Losses struct {
	Failovers int
	Pushed    int // jobs whose push was confirmed
	Lost      int // jobs of those that no worker has done
	Again     int // jobs that were delivered after their end had been confirmed
	// Window is the longest time between a confirmed push that was lost and the end of its failover.
	Window time.Duration
}

// LossesOf counts those of a history that ends with Drained.
func LossesOf(all []Record) Losses {
	v := &view{all: all, windows: windowsOf(all)}
	out := Losses{Failovers: len(v.windows)}
	ended, done, pushed := map[string]bool{}, map[string]bool{}, map[string]int{}
	again := map[string]bool{}
	for i, r := range all {
		switch {
		case r.Kind == Pushed && r.Text == OK:
			pushed[r.Of] = i
		case r.Kind == Start && ended[r.Of]:
			again[r.Of] = true
		case r.Kind == Done:
			done[r.Of] = true
		case r.Kind == Acked:
			ended[r.Of] = true
		}
	}
	out.Pushed, out.Again = len(pushed), len(again)
	for of, at := range pushed {
		if done[of] {
			continue
		}
		out.Lost++
		for _, w := range v.windows {
			if w.from < at && at < w.to && w.to < len(all) {
				out.Window = max(out.Window, time.Duration(all[w.to].At-all[at].At)*time.Microsecond)
			}
		}
	}
	return out
}
