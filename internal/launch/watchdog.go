package launch

import (
	"io"
	"os"
	"os/exec"
)

// Watchdog is a shell that waits for this process to end, however it ends, and then cleans up. Without it a test
// binary that panics, times out or is killed would leave servers running, as would luagen prove. It ignores the
// signals that a terminal sends to the whole group.
type Watchdog struct {
	cmd  *exec.Cmd
	pipe io.Closer
}

// KillServer is the script that kills a server, of the process id $1, and removes its folder $2.
const KillServer = `kill -9 "$1"; rm -rf "$2"`

// StartWatchdog starts a watchdog that runs script with $1, $2 ... when this process has ended. Without a shell it
// starts nothing and returns nil.
func StartWatchdog(script string, args ...string) *Watchdog {
	read, write, err := os.Pipe()
	if err != nil {
		return nil
	}
	defer func() { _ = read.Close() }()
	cmd := exec.Command("sh", append([]string{"-c", "trap '' INT TERM HUP; read _; " + script, "watchdog"}, args...)...)
	cmd.Stdin = read
	if err := cmd.Start(); err != nil {
		_ = write.Close()
		return nil
	}
	return &Watchdog{cmd: cmd, pipe: write}
}

// Dismiss ends the watchdog before it acts. A nil watchdog has nothing to do.
func (w *Watchdog) Dismiss() {
	if w == nil {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
	_ = w.pipe.Close()
}
