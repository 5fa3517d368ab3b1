package sidekiq

import "errors"

// ErrStopRequested is the error of Work when the process was stopped from Sidekiq's Busy page or by
// Sidekiq::Process#stop!.
var ErrStopRequested = errors.New("sidekiq: stop was requested on Sidekiq's Busy page")

// signals is how many signals one heartbeat reads, the newest. They stay until the page's minute for them is over or
// Work ends: with a lost reply, one that was taken would be lost too, and to obey one again changes nothing.
const signals = 100

// signalled does what a signal of the Busy page asks for: TSTP, in Sidekiq 4 USR1, takes no more jobs, TERM ends Work.
// Ruby prints the backtraces of its threads on TTIN, which is ignored here.
func (w *worker) signalled(signal string) {
	switch signal {
	case "TSTP", "USR1":
		w.quiet.Store(true)
	case "TERM":
		w.quiet.Store(true)
		w.end(ErrStopRequested)
	}
}

// isQuiet reports whether the process takes no more jobs.
func (w *worker) isQuiet() bool { return w.quiet.Load() || closed(w.o.Quiet) }

// wanted returns how many jobs to take: when the process is quiet, those of a take whose reply is missing.
func (w *worker) wanted() int {
	if w.isQuiet() {
		return w.unheard
	}
	return w.free()
}
