package launch_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/launch"
)

// The folder is among the temporary files, as long as a socket has room there.
func TestASocketHasRoom(t *testing.T) {
	for _, deep := range []int{0, 60, 70, 80, 90, 100, 200} {
		temp := t.TempDir()
		if pad := deep - len(temp) - 1; pad > 0 {
			temp = filepath.Join(temp, strings.Repeat("x", pad))
			require.NoError(t, os.Mkdir(temp, 0o755))
		}
		t.Setenv("TMPDIR", temp)
		dir, socket, err := launch.SocketDir("luatomic-test-")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		listener, err := net.Listen("unix", socket)
		require.NoError(t, err, "%d bytes", len(temp))
		require.NoError(t, listener.Close())
		require.Equal(t, len(temp) <= 71, filepath.Dir(dir) == temp, "%d bytes, %s", len(temp), dir)
	}
}
