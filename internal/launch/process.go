package launch

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// most is how many bytes the path of a Unix socket has at most, on macOS; Linux has four more.
const most = 103

// name is that of the socket in its folder.
const name = "s.sock"

// SocketDir makes a folder for temporary files, and returns it with the path of a socket in it. Where the folder of all
// temporary files, TMPDIR, is too deep for a socket, it is made in /tmp: a server could not listen there, nor a client
// dial.
func SocketDir(prefix string) (dir, socket string, err error) {
	parent := ""
	if len(filepath.Join(os.TempDir(), prefix+"4294967295", name)) > most {
		parent = "/tmp"
	}
	dir, err = os.MkdirTemp(parent, prefix)
	return dir, filepath.Join(dir, name), err
}

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
