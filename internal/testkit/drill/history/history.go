// Package history is what the processes of a drill write down, and the checker of it.
//
// All processes append to one file, each record with one write. So the order of the records is that of the writes: a
// record that a process wrote before it did something stands before all that followed from it, and no clock is
// compared. A process that holds something (a job, a lock) writes a record and then asks its lease whether it lasts;
// its next record says so in Held. So a lease lasted from the first to the last record of its span that a later one
// confirms, however late the machine ran, and however long the process was stopped.
package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Things have names in two words: what sort of thing, and which one. The sorts are these.
const (
	Job  = "job "
	Lock = "lock "
	RPC  = "call "
	JID  = "jid " // a job of Sidekiq
)

// Kind says what a record is about. The comments say what N and Text are beside it.
type Kind string

// The kinds of records. A call has two: one before it, and one with its end, in Text.
const (
	Push   Kind = "push" // N: the delay of the job, ms
	Pushed Kind = "pushed"
	Cancel Kind = "cancel"
	// Cancelled has the state of the job before, or an end.
	Cancelled Kind = "cancelled"
	Start     Kind = "start" // of the span of a delivery. N: attempt
	Live      Kind = "live"  // of any span: its holder works
	Done      Kind = "done"  // the work of a delivery is done
	Acked     Kind = "acked" // the queue has confirmed the end of a job

	Acquire Kind = "acquire" // of the span of a lease
	Grant   Kind = "grant"   // N: fence
	// Write is a write to the store that the lock protects. The order of these records is that of the store. N: fence
	Write   Kind = "write"
	Release Kind = "release"

	Call Kind = "call" // Text: the method
	End  Kind = "end"
	Run  Kind = "run" // N: attempt

	Schedule  Kind = "schedule"
	Scheduled Kind = "scheduled"
	Found     Kind = "found" // an entry of a Sidekiq queue

	Fault Kind = "fault" // Text: which
	Step  Kind = "step"  // before and after a step of the server's clock
	// Replicated comes in pairs of one N: before a write, and after a replica has confirmed it, with what came before
	// it.
	Replicated Kind = "replicated"
	// Failover comes in pairs: before a replica is promoted, and after no process reaches the old master any longer.
	Failover Kind = "failover"
	// Drained says that all queues are empty, and that all entries of Sidekiq's queues have been written down.
	Drained Kind = "drained"
)

// The ends of a call; the texts of Pushed, Cancelled, End and Scheduled.
const (
	OK      = "ok"
	Not     = "not" // it has done nothing
	Unknown = "unknown"
)

// Record is one line of a history.
type Record struct {
	At   int64  `json:"at"` // by the clock of the machine, us
	By   string `json:"by"` // process
	Kind Kind   `json:"kind"`
	Of   string `json:"of,omitempty"`
	// Span numbers what a process holds, from 1.
	Span uint64 `json:"span,omitempty"`
	N    int64  `json:"n,omitempty"`
	// Held says that the lease of the span lasted when its last record had been written.
	Held bool   `json:"held,omitempty"`
	Text string `json:"text,omitempty"`
}

// Log appends records to a file that other processes append to as well. It is safe for concurrent use.
type Log struct {
	by   string
	file *os.File

	mu    sync.Mutex
	spans uint64
}

// Open opens the history for one process.
func Open(path, by string) (*Log, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &Log{by: by, file: file}, err
}

// Add appends a record. A history that cannot be written proves nothing, so the process ends then.
func (l *Log) Add(r Record) {
	r.At, r.By = time.Now().UnixMicro(), l.by
	line, err := json.Marshal(r)
	if err == nil {
		// A process that is killed while it writes can leave half of a line; the next one begins its own.
		_, err = l.file.Write(append(append([]byte{'\n'}, line...), '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("drill: cannot write the history: %v", err))
	}
}

// Span is what a process holds for a while.
type Span struct {
	log  *Log
	of   string
	n    uint64
	held bool
}

// Span begins a span of the job, lock or other thing of that name. Nothing is written.
func (l *Log) Span(of string) *Span {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spans++
	return &Span{log: l, of: of, n: l.spans}
}

// Add appends a record of the span, and then asks whether its lease lasts. The answer goes into the next record. One
// goroutine uses a span.
func (s *Span) Add(kind Kind, n int64, lasts func() bool) bool {
	s.log.Add(Record{Kind: kind, Of: s.of, Span: s.n, N: n, Held: s.held})
	s.held = lasts()
	return s.held
}

// Read reads a history. Lines that a killed process left half-written are counted in torn.
func Read(in io.Reader) (all []Record, torn int, err error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var r Record
		if json.Unmarshal(line, &r) != nil || r.Kind == "" {
			torn++
			continue
		}
		all = append(all, r)
	}
	return all, torn, lines.Err()
}

// ReadFile reads the history in a file.
func ReadFile(path string) (all []Record, torn int, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	return Read(file)
}

// WriteAll writes a history as Read reads it.
func WriteAll(out io.Writer, all []Record) error {
	w := bufio.NewWriter(out)
	for _, r := range all {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return w.Flush()
}
