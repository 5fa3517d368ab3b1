//go:build unix

package launch

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Stop stops the process: it keeps its memory and connections, and executes nothing. The signal takes a moment to reach
// each thread; where the system has /proc, Stop waits for that.
func Stop(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(5 * time.Second); !stopped(pid) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// stopped reports whether no thread of the process runs, as far as that can be known.
func stopped(pid int) bool {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/[0-9]*/stat")
	for _, thread := range threads {
		line, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		_, state, _ := bytes.Cut(line[bytes.LastIndexByte(line, ')')+1:], []byte(" "))
		if !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return true
}

// Continue lets a stopped process run on.
func Continue(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) }
