package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/luatomic/luatomic/lua"
)

// session is one run of a command: its arguments, its outputs, its signals.
type session struct {
	url     string
	prefix  string
	args    []string
	child   []string
	signals *signals

	mu     sync.Mutex // guards both outputs: watchers and workers write at the same time
	stdout *json.Encoder
	stderr io.Writer
	lost   error // the first write that failed for good
}

func newSession(stdout, stderr io.Writer) *session {
	s := &session{stdout: json.NewEncoder(stdout), stderr: stderr}
	s.stdout.SetEscapeHTML(false)
	return s
}

func (s *session) globalFlags(fs *flag.FlagSet) {
	fs.StringVar(&s.url, "redis", s.url, "server `URL`: redis://, rediss://, unix://; "+
		"a cluster as redis://HOST:PORT?addr=HOST:PORT; else $REDIS_URL, else "+defaultURL)
	fs.StringVar(&s.prefix, "prefix", s.prefix, "`TEXT` before every key, such as app:")
}

// emit writes one object as a line of stdout.
func (s *session) emit(v any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stdout.Encode(v); err != nil {
		err = fmt.Errorf("stdout: %w", err)
		s.lose(err)
		return err
	}
	return nil
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

// note writes a message to stderr.
func (s *session) note(format string, args ...any) {
	fmt.Fprintf(s, format+"\n", args...)
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
		return lua.CheckName(what, s.args[0])
	}
	return usagef("one %s, but there are %d arguments: %q; leave the others out", what, len(s.args), s.args)
}

// queueArgs checks that there are queues and that they can name keys.
func (s *session) queueArgs() error {
	if len(s.args) == 0 {
		return usagef("the queue is missing; name at least one queue: the server keeps no list of them")
	}
	for _, name := range s.args {
		if err := lua.CheckName("queue", name); err != nil {
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
