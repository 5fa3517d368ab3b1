package launch

import (
	"os"
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
