package main

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/luatomic/luatomic/internal/show"
)

// What a terminal is asked for. The other screen, so that the lines of the shell are there again at the end; no cursor;
// lines that are too long are cut.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	// A frame is shown as a whole by terminals that know 2026. Each line replaces the one that is there, and nothing is
	// cleared before: so no terminal flickers.
	beginFrame = "\x1b[?2026h\x1b[H"
	endLine    = "\x1b[K"
	endFrame   = "\x1b[J\x1b[?2026l"
)

// screen is a terminal on which a command draws again and again. close gives it back as it was.
type screen struct {
	out, in *os.File
	restore func() // of the keys; nil where stdin is no terminal
	keys    chan byte
	signals chan os.Signal
}

var errNoTerminal = errors.New("stdout is no terminal, and top draws on one; " +
	"for lines of JSON use luatomic stats QUEUE --watch")

// canDraw is an error where stdout is no terminal that can be drawn on.
func canDraw(stdout io.Writer) error {
	if !isTable(stdout) || os.Getenv("TERM") == "dumb" {
		return errNoTerminal
	}
	return nil
}

func openScreen(out, stdin *os.File) *screen {
	s := &screen{out: out, in: stdin, keys: make(chan byte), signals: make(chan os.Signal, 4)}
	signal.Notify(s.signals, resized, suspended)
	s.enter()
	if s.restore != nil {
		go s.read()
	}
	return s
}

func (s *screen) enter() {
	if isTerminal(s.in) {
		if restore, err := readKeys(s.in); err == nil {
			s.restore = restore
		}
	}
	_, _ = io.WriteString(s.out, enterScreen)
}

func (s *screen) leave() {
	_, _ = io.WriteString(s.out, leaveScreen)
	if s.restore != nil {
		s.restore()
	}
}

func (s *screen) close() {
	signal.Stop(s.signals)
	s.leave()
}

// read passes the keys on. It ends with the program: a read of a terminal cannot be ended.
func (s *screen) read() {
	var key [1]byte
	for {
		if n, err := s.in.Read(key[:]); err != nil {
			return
		} else if n == 1 {
			s.keys <- key[0]
		}
	}
}

// got handles a signal of the terminal.
func (s *screen) got(sig os.Signal) {
	if sig == suspended {
		s.leave()
		suspend()
		s.enter()
	}
}

// draw replaces what is shown by the lines, which fit.
func (s *screen) draw(lines []string) error {
	_, err := io.WriteString(s.out, beginFrame+strings.Join(lines, endLine+"\r\n")+endLine+endFrame)
	return err
}

// cut is a line of at most so many columns. Its colours do not count.
func cut(line string, most int) string {
	var b strings.Builder
	n, inColour := 0, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			inColour = true
		case inColour:
			inColour = r != 'm'
		default:
			if n += show.RuneWidth(r); n > most {
				continue
			}
		}
		b.WriteRune(r)
	}
	return b.String()
}
