package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/luatomic/luatomic/internal/exact"
	"github.com/luatomic/luatomic/internal/keys"
	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/lua"
)

// session is one run of a command: its arguments, its outputs, its signals.
type session struct {
	url     string
	tls     tlsFlags
	prefix  string
	tag     string // of the queues that the arguments name
	args    []string
	child   []string
	signals *signals
	// children are the commands that this run has started.
	children children
	// lasting is set by a command that runs until it is stopped: SIGTERM is its ordinary end.
	lasting bool
	cut     atomic.Bool // a CMD or a request was cut short after the first signal
	outage  *outage     // of the server that connect has found

	mu      sync.Mutex // guards both outputs: watchers and workers write at the same time
	stdout  *json.Encoder
	out     io.Writer // what stdout writes to
	tables  bool      // it is a terminal, which gets tables
	colours bool
	headed  map[string]*heading // of the tables that were printed, by their columns
	stderr  io.Writer
	lost    error // the first write that failed for good
}

func newSession(stdout, stderr io.Writer) *session {
	s := &session{stdout: json.NewEncoder(stdout), out: stdout, tables: isTable(stdout), stderr: stderr}
	s.stdout.SetEscapeHTML(false)
	s.colours = s.tables && isColoured()
	return s
}

func (s *session) globalFlags(fs *flag.FlagSet) {
	fs.StringVar(&s.url, "redis", s.url, "server `URL`: redis://, rediss://, unix://; "+
		"a cluster as redis://HOST:PORT?addr=HOST:PORT, behind a sentinel redis://HOST:PORT?master_name=NAME; "+
		"else $REDIS_URL, else "+defaultURL)
	fs.StringVar(&s.prefix, "prefix", s.prefix, "`TEXT` before every key, such as app:")
	s.tls.add(fs)
}

// isGlobal reports whether every command that connects has the flag, whatever the dialect.
func isGlobal(name string) bool {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	new(session).globalFlags(fs)
	return fs.Lookup(name) != nil
}

// emit writes one object as a line of stdout.
func (s *session) emit(v any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.encode(v); err != nil {
		err = fmt.Errorf("stdout: %w", err)
		s.lose(err)
		return err
	}
	return nil
}

// encode writes the object. A terminal gets it without characters that it would obey, which JSON allows in a text.
func (s *session) encode(v any) error {
	v = exact.FilledLists(v)
	if !s.tables {
		return s.stdout.Encode(v)
	}
	var b bytes.Buffer
	one := json.NewEncoder(&b)
	one.SetEscapeHTML(false)
	if err := one.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(s.out, inert(b.String()))
	return err
}

// inert is a line of JSON in which the characters that a terminal does not print are escaped. They are in texts only.
func inert(line string) string {
	var b strings.Builder
	for _, r := range line {
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// kill ends a CMD before it has ended by itself.
func (s *session) kill(running *child) {
	if s.signals.stop.Err() != nil {
		s.cut.Store(true)
	}
	running.terminate()
}

// drained reports whether a manager of services has ended a lasting command, which then finished all it had begun: that
// is no failure.
func (s *session) drained() bool {
	if !s.lasting || s.cut.Load() || s.signals.hard.Err() != nil {
		return false
	}
	switch s.signals.stoppedBy() {
	case syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGABRT:
		return true
	}
	return false
}

// lose notes that an output is closed, and ends the command as an interrupt does: its
// results from here on would be lost.
func (s *session) lose(err error) {
	if s.lost == nil {
		s.lost = err
	}
	s.signals.interrupt()
}

// Write is stderr, for the commands that pass on what a child prints.
func (s *session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.stderr.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		s.lose(err)
	}
	return n, err
}

// messageText is how long a message can be: one that is longer loses its middle.
const messageText = 2000

// note writes a message to stderr. What it names can be of others: it has no character that a terminal would obey.
func (s *session) note(format string, args ...any) {
	fmt.Fprintln(s, show.Message(messageText, fmt.Sprintf(format, args...)))
}

// warn writes an error to stderr; the command continues.
func (s *session) warn(err error) {
	complain(s, err)
}

// oneArg checks that there is exactly one argument and that it can name a key.
func (s *session) oneArg(what string) error {
	switch len(s.args) {
	case 0:
		return usagef("the %s is missing; name it", what)
	case 1:
		return keys.CheckName(what, s.args[0])
	}
	return usagef("one %s, but there are %d arguments: %q; leave the others out", what, len(s.args), s.args)
}

// queueArgs checks that there are queues and that they can name keys.
func (s *session) queueArgs() error {
	if len(s.args) == 0 {
		return usagef("the queue is missing; name at least one queue; luatomic queues ls lists them")
	}
	for _, name := range s.args {
		if err := keys.CheckName("queue", name); err != nil {
			return err
		}
	}
	return nil
}

// atLeast checks a duration flag.
func atLeast(name string, d, least time.Duration) error {
	if d < least {
		return usagef("--%s %v is too short; write at least %v", name, d, least)
	}
	return nil
}

// milli is a time as the output shows it; nil becomes null.
func milli(t lua.Opt[time.Time]) *int64 {
	at, ok := t.Get()
	if !ok {
		return nil
	}
	ms := at.UnixMilli()
	return &ms
}

// withClient runs f with a client of the user's server.
func (s *session) withClient(f func(ctx context.Context, client lua.Client) error) error {
	client, err := s.connect(s.signals.stop)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	err = f(s.signals.stop, client)
	if err != nil && s.signals.stop.Err() != nil {
		return errInterrupted
	}
	return err
}
