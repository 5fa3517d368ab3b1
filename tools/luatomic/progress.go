package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// progress draws one line on stderr, over and over, if stderr is a terminal.
type progress struct {
	s    *session
	what string
	size int64 // of the input in bytes; -1 when unknown
	last time.Time
	on   bool
}

const redrawAfter = 100 * time.Millisecond

func newProgress(s *session, what string, size int64) *progress {
	f, ok := s.stderr.(*os.File)
	return &progress{s: s, what: what, size: size, on: ok && isTerminal(f)}
}

func (p *progress) show(n int, read int64) {
	if !p.on || time.Since(p.last) < redrawAfter {
		return
	}
	p.last = time.Now()
	bar := ""
	if p.size > 0 {
		done := min(20*read/p.size, 20)
		bar = fmt.Sprintf("[%s%s] %d%% ", strings.Repeat("#", int(done)), strings.Repeat(".", int(20-done)),
			min(100*read/p.size, 100))
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	fmt.Fprintf(p.s.stderr, "\r\x1b[K%s%s %d", bar, p.what, n)
}

func (p *progress) clear() {
	if !p.on || p.last.IsZero() {
		return
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	fmt.Fprint(p.s.stderr, "\r\x1b[K")
}
