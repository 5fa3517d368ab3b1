package luatomictest_test

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// A wait asks the sentinel many times, on few connections.
func TestQuestionsToASentinelShareAConnection(t *testing.T) {
	t.Parallel()
	master := luatomictest.StartServer(t)
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	require.NoError(t, os.WriteFile(conf, []byte("sentinel monitor luatomictest "+host+" "+port+" 1\n"), 0o600))
	sentinel := luatomictest.StartServer(t, conf, "--sentinel")
	watched := luatomictest.WatchedBy(t, sentinel, master)
	for range 30 {
		require.Equal(t, master, watched.Master(t.Context()))
	}
	info := sentinel.Client().Info(t.Context(), "clients").Val()
	connected, err := strconv.Atoi(regexp.MustCompile(`connected_clients:(\d+)`).FindStringSubmatch(info)[1])
	require.NoError(t, err)
	require.Less(t, connected, 10)
}
