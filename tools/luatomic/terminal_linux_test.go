package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/show"
	"github.com/luatomic/luatomic/luatomictest"
)

// pty is a terminal that a program runs on: the test sees what its user would see.
type pty struct {
	*cli
	control *os.File
	before  syscall.Termios
	picture *picture
	read    chan struct{} // closed when the program and its children have closed the terminal
}

// onTerminal starts the program on a terminal of its own, which is its controlling terminal.
func (e *env) onTerminal(columns, lines int, args ...string) *pty {
	e.t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(e.t, err)
	var number, unlock int32
	require.NoError(e.t, ioctl(control.Fd(), syscall.TIOCGPTN, unsafe.Pointer(&number)))
	require.NoError(e.t, ioctl(control.Fd(), syscall.TIOCSPTLCK, unsafe.Pointer(&unlock)))
	side, err := os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(e.t, err)
	p := &pty{control: control, picture: &picture{columns: columns, lines: lines}, read: make(chan struct{})}
	p.cli = &cli{t: e.t, cmd: exec.Command(os.Args[0])}
	p.resize(columns, lines)
	p.before = p.mode()
	p.cmd.Args = e.line(args)
	p.cmd.Env = append(append(os.Environ(), asCLI+"=1", "REDIS_URL="+e.url, "TERM=xterm"), e.extra...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = side, side, side
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(e.t, p.cmd.Start())
	require.NoError(e.t, side.Close())
	go p.watch()
	e.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = control.Close()
		<-p.read
	})
	return p
}

func (p *pty) watch() {
	defer close(p.read)
	some := make([]byte, 4096)
	for {
		n, err := p.control.Read(some)
		p.picture.feed(some[:n])
		if err != nil { // EIO when the other side is closed
			return
		}
	}
}

func (p *pty) resize(columns, lines int) {
	p.t.Helper()
	size := [4]uint16{uint16(lines), uint16(columns)}
	require.NoError(p.t, ioctl(p.control.Fd(), syscall.TIOCSWINSZ, unsafe.Pointer(&size)))
}

func (p *pty) mode() (mode syscall.Termios) {
	p.t.Helper()
	require.NoError(p.t, ioctl(p.control.Fd(), getTermios, unsafe.Pointer(&mode)))
	return mode
}

func (p *pty) types(keys string) {
	p.t.Helper()
	_, err := p.control.WriteString(keys)
	require.NoError(p.t, err)
}

// seen waits until the terminal shows the text. A program that has ended shows nothing more.
func (p *pty) seen(text string) {
	p.t.Helper()
	end := time.After(within)
	for on := true; !strings.Contains(p.picture.String(), text); {
		require.True(p.t, on, "%q is not on the terminal:\n%s", text, p.picture)
		select {
		case <-time.After(5 * time.Millisecond):
		case <-p.read:
			on = strings.Contains(p.picture.String(), text)
		case <-end:
			on = false
		}
	}
}

// ends waits for the program, and checks its exit code and that the terminal is as it was.
func (p *pty) ends(code int) {
	p.t.Helper()
	p.wait()
	<-p.read
	require.Equal(p.t, code, p.cmd.ProcessState.ExitCode(), "%s", p.picture)
	require.NoError(p.t, p.picture.err())
	require.Empty(p.t, p.picture.asked(), "modes are left on")
}

// picture is what a terminal shows. It knows the sequences that the program may send and no other: one that comes from
// data is an error.
type picture struct {
	mu             sync.Mutex
	columns, lines int
	rest           []byte // of a sequence or a character that is not whole
	cells          map[int][]rune
	shell          map[int][]rune // what was there before the other screen
	row, column    int
	modes          map[string]bool
	frames         int
	wrong          error
	raw            strings.Builder
}

// unbounded lets what is drawn be larger than the terminal was at first.
func (p *picture) unbounded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.columns, p.lines = math.MaxInt, math.MaxInt
}

func (p *picture) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	last := -1
	for row := range p.cells {
		last = max(last, row)
	}
	for row := range last + 1 {
		line := strings.ReplaceAll(string(p.cells[row]), string(behindWide), "")
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

func (p *picture) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrong
}

// asked are the modes that are on and were not at the start.
func (p *picture) asked() (on []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for mode, set := range p.modes {
		if usual := mode == "?25" || mode == "?7"; set != usual {
			on = append(on, mode)
		}
	}
	return on
}

func (p *picture) drawn() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frames
}

func (p *picture) feed(some []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.raw.Write(some)
	for p.rest = append(p.rest, some...); len(p.rest) > 0; {
		n := 1
		if p.rest[0] == '\x1b' {
			if n = p.sequence(string(p.rest)); n == 0 {
				return
			}
		} else {
			if !utf8.FullRune(p.rest) {
				return
			}
			var r rune
			if r, n = utf8.DecodeRune(p.rest); r == utf8.RuneError && n == 1 {
				p.fault(fmt.Sprintf("the byte %#x", p.rest[0]))
			}
			p.put(r)
		}
		p.rest = p.rest[n:]
	}
}

// behindWide is the second column of a wide character.
const behindWide = '\x00'

func (p *picture) put(r rune) {
	switch {
	case r == '\r':
		p.column = 0
	case r == '\n':
		p.row++
	case !unicode.IsPrint(r):
		p.fault(fmt.Sprintf("the character %q", r))
	default:
		if p.cells == nil {
			p.cells = make(map[int][]rune)
		}
		line, width := p.cells[p.row], show.RuneWidth(r)
		for len(line) < p.column+width {
			line = append(line, ' ')
		}
		for i := range width {
			line[p.column+i] = behindWide
		}
		if width > 0 {
			line[p.column] = r
		}
		p.cells[p.row], p.column = line, p.column+width
		if drawing := p.modes["?1049"]; drawing && (p.column > p.columns || p.row >= p.lines) {
			p.fault(fmt.Sprintf("a character at line %d, column %d of %d x %d", p.row, p.column, p.columns, p.lines))
		}
	}
}

func (p *picture) fault(what string) {
	if p.wrong == nil {
		p.wrong = fmt.Errorf("the terminal got %s:\n%q", what, p.raw.String())
	}
}

// sequence obeys one sequence, and returns its length, or 0 if it is not whole.
func (p *picture) sequence(text string) int {
	for i, r := range text[1:] {
		if i > 0 && r >= '@' && r <= '~' {
			p.obey(text[1 : i+2])
			return i + 2
		}
	}
	if len(text) > 30 {
		p.obey(text)
		return len(text)
	}
	return 0
}

func (p *picture) obey(sequence string) {
	switch mode := strings.TrimRight(strings.TrimPrefix(sequence, "["), "hl"); {
	case sequence == "[H":
		p.row, p.column = 0, 0
		p.frames++
	case sequence == "[K":
		if line := p.cells[p.row]; len(line) > p.column {
			p.cells[p.row] = line[:p.column]
		}
	case sequence == "[J":
		for row := range p.cells {
			if row > p.row {
				delete(p.cells, row)
			}
		}
	case mode == "?1049" || mode == "?25" || mode == "?7" || mode == "?2026":
		p.mode(mode, strings.HasSuffix(sequence, "h"))
	case !strings.Contains(" [0m [1m [31m [32m [33m ", " "+sequence+" "):
		p.fault(fmt.Sprintf("the sequence %q", sequence))
	}
}

func (p *picture) mode(mode string, on bool) {
	if p.modes == nil {
		p.modes = make(map[string]bool)
	}
	if p.modes[mode] = on; mode != "?1049" {
		return
	}
	if on {
		p.shell, p.cells = p.cells, make(map[int][]rune)
	} else {
		p.cells = p.shell
	}
}

// stopped waits until the program is stopped, as Ctrl-Z does it.
func (p *pty) stopped() {
	p.t.Helper()
	luatomictest.Eventually(p.t, within, "the program is stopped", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		_, rest, _ := strings.Cut(string(stat), ") ")
		return err == nil && strings.HasPrefix(rest, "T")
	})
}

// drew waits until the program has drawn once more.
func (p *pty) drew() {
	p.t.Helper()
	before := p.picture.drawn()
	luatomictest.Eventually(p.t, within, "it draws", func() bool { return p.picture.drawn() > before })
}
