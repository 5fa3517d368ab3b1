//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"unsafe"
)

func isTerminal(f *os.File) bool {
	var size [4]uint16
	return ioctl(f.Fd(), syscall.TIOCGWINSZ, unsafe.Pointer(&size)) == nil
}

func ioctl(fd, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(arg)); errno != 0 {
		return errno
	}
	return nil
}

// sizeOf is how many characters and lines the terminal has.
func sizeOf(f *os.File) (columns, lines int) {
	var size [4]uint16
	if ioctl(f.Fd(), syscall.TIOCGWINSZ, unsafe.Pointer(&size)) != nil {
		return 0, 0
	}
	return int(size[1]), int(size[0])
}

// readKeys lets the terminal pass on each key at once and show none, until restore. Ctrl-C stays a signal.
func readKeys(f *os.File) (restore func(), err error) {
	var before syscall.Termios
	if err := ioctl(f.Fd(), getTermios, unsafe.Pointer(&before)); err != nil {
		return nil, err
	}
	keys := before
	keys.Lflag &^= syscall.ICANON | syscall.ECHO
	keys.Cc[syscall.VMIN], keys.Cc[syscall.VTIME] = 1, 0
	if err := ioctl(f.Fd(), setTermios, unsafe.Pointer(&keys)); err != nil {
		return nil, err
	}
	return func() { _ = ioctl(f.Fd(), setTermios, unsafe.Pointer(&before)) }, nil
}

// The signals of a terminal whose size changes, and whose user wants the shell.
const (
	resized   = syscall.SIGWINCH
	suspended = syscall.SIGTSTP
)

// suspend stops this process until the shell continues it. The stop does not come at once: it waits for the end of it.
func suspend() {
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	<-resumed
}

// inForeground reports whether a terminal's keys send their signals to this process.
func inForeground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return false // it has none
	}
	defer func() { _ = tty.Close() }()
	t := &terminal{fd: tty.Fd()}
	return t.foreground() == int32(syscall.Getpgrp())
}

// terminal is lent to a child: a group in the background that reads from its
// terminal would be stopped. This process does what a shell does for a job: it takes
// the terminal back when the child stops or ends.
type terminal struct {
	fd    uintptr
	group int32
}

// lendTerminal prepares cmd to start in the foreground, if its stdin is a terminal
// and this process has it. Else it returns nil.
func lendTerminal(cmd *exec.Cmd) *terminal {
	f, ok := cmd.Stdin.(*os.File)
	if !ok || !isTerminal(f) {
		return nil
	}
	t := &terminal{fd: f.Fd(), group: int32(syscall.Getpgrp())}
	if t.foreground() != t.group {
		return nil
	}
	cmd.SysProcAttr.Foreground = true
	cmd.SysProcAttr.Ctty = int(t.fd)
	return t
}

func (t *terminal) foreground() (group int32) {
	if ioctl(t.fd, syscall.TIOCGPGRP, unsafe.Pointer(&group)) != nil {
		return -1
	}
	return group
}

func (t *terminal) give(group int32) {
	_ = ioctl(t.fd, syscall.TIOCSPGRP, unsafe.Pointer(&group))
}

// wait returns when the child has ended. When the terminal's user stops the child,
// this process stops with it, as one job, and continues with it.
func (t *terminal) wait(cmd *exec.Cmd) (code int, signaled bool) {
	// A group in the background may not give the terminal to anyone, unless it
	// ignores this signal.
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	defer t.give(t.group)
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 1, false
		case status.Stopped():
			t.give(t.group)
			_ = syscall.Kill(0, syscall.SIGTSTP)
			<-resumed
			if t.foreground() == t.group { // fg, not bg
				t.give(int32(cmd.Process.Pid))
			}
			signalGroup(cmd, syscall.SIGCONT)
		default:
			return outcome(status)
		}
	}
}
