package observe

import (
	"slices"
	"strings"

	"github.com/luatomic/luatomic/internal/show"
)

// Sort says how the values of an instrument are combined.
type Sort uint8

// The sorts of instruments.
const (
	// Counter: the values are added up.
	Counter Sort = iota + 1
	// Histogram: the values are sorted into Bounds.
	Histogram
	// Gauge: the last value counts. Gauges are read by a Census.
	Gauge
)

// Instrument is one thing that is measured. The instruments of messages and calls have the names and attributes of the
// OpenTelemetry conventions. The names of the others begin with luatomic.
type Instrument struct {
	Name, Unit, About string
	Sort              Sort
	// Labels are the names of its attributes, in the order of the values that Record gets.
	Labels []string
}

// Bounds are the upper bounds of the histograms, in seconds.
var Bounds = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300}

const system = "luatomic"

// message returns the attributes of a queue. Two queues with one name differ by their tag.
func message(more ...string) []string {
	return append([]string{"messaging.system", "messaging.destination.name", "luatomic.tag"}, more...)
}

var (
	jobRun = &Instrument{"messaging.process.duration", "s", "Time that handlers of jobs took.", Histogram,
		message("messaging.operation.name", "error.type")}
	jobConsumed = &Instrument{"messaging.client.consumed.messages", "{message}", "Deliveries that ended.", Counter,
		message("messaging.operation.name", "error.type")}
	jobOutcome = &Instrument{"luatomic.queue.outcomes", "{message}", "Deliveries that ended, by outcome.", Counter,
		message("luatomic.outcome")}
	jobWait = &Instrument{"luatomic.queue.wait.duration", "s", "Time from a job's being ready to its delivery.",
		Histogram, message()}
	lockWait = &Instrument{"luatomic.lock.wait.duration", "s", "Time that acquires of locks took.", Histogram,
		[]string{"luatomic.lock.group"}}
	lockHold = &Instrument{"luatomic.lock.hold.duration", "s", "Time that locks were held.", Histogram,
		[]string{"luatomic.lock.group", "error.type"}}
	lockQueued = &Instrument{"luatomic.lock.queued", "{acquire}", "Acquires that had to wait.", Counter,
		[]string{"luatomic.lock.group"}}
	callServed = &Instrument{"rpc.server.call.duration", "s", "Time that handlers of calls took.", Histogram,
		[]string{"rpc.system.name", "rpc.method", "error.type"}}
	callMade = &Instrument{"rpc.client.call.duration", "s", "Time that calls took.", Histogram,
		[]string{"rpc.system.name", "rpc.method", "error.type"}}

	queueJobs = &Instrument{"luatomic.queue.jobs", "{message}", "Jobs in the queue, by state.", Gauge,
		message("luatomic.state")}
	queueOldest = &Instrument{"luatomic.queue.oldest.age", "s", "Age of the oldest ready job.", Gauge, message()}
	queueDead   = &Instrument{"luatomic.queue.dead.size", "By", "Bytes of the bodies of dead jobs.", Gauge, message()}
	queueLapsed = &Instrument{"luatomic.queue.lapsed", "{message}",
		"Running jobs whose lease has ended and that no consumer has taken back.", Gauge, message()}
	queuePaused = &Instrument{"luatomic.queue.paused", "{queue}", "1 while the queue is paused.", Gauge, message()}
	queueDay    = &Instrument{"luatomic.queue.today", "{message}", "Deliveries since midnight UTC, by result.", Gauge,
		message("luatomic.result")}
	queueWorkers = &Instrument{"luatomic.queue.workers", "{process}", "Live processes that consume the queue.", Gauge,
		message()}
	busNodes   = &Instrument{"luatomic.rpc.nodes", "{node}", "Live nodes of the bus.", Gauge, []string{"luatomic.bus"}}
	busRunning = &Instrument{"luatomic.rpc.running", "{call}", "Handlers of calls that run.", Gauge,
		[]string{"luatomic.bus"}}
)

// Instruments returns all instruments, sorted by name.
func Instruments() []*Instrument {
	all := []*Instrument{
		jobRun, jobConsumed, jobOutcome, jobWait, lockWait, lockHold, lockQueued, callServed, callMade,
		queueJobs, queueOldest, queueDead, queueLapsed, queuePaused, queueDay, queueWorkers, busNodes,
		busRunning,
	}
	slices.SortFunc(all, func(a, b *Instrument) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// PrometheusName is the name by OpenTelemetry's rules for Prometheus, so that both modules feed one dashboard:
// messaging.process.duration is messaging_process_duration_seconds.
func (i *Instrument) PrometheusName() string {
	name := show.PrometheusLabel(i.Name)
	switch i.Unit {
	case "s":
		name += "_seconds"
	case "By":
		name += "_bytes"
	}
	if i.Sort == Counter {
		name += "_total"
	}
	return name
}
