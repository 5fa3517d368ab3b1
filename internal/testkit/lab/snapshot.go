package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
)

// FailSnapshot has a snapshot of the server fail: a folder has the name of its file. A server that makes snapshots by
// itself refuses PING and all writes from then on, until BGSAVE succeeds, which it can after unblock.
func FailSnapshot(t testing.TB, client *redis.Client) (unblock func()) {
	t.Helper()
	file := filepath.Join(client.ConfigGet(t.Context(), "dir").Val()["dir"], "dump.rdb")
	require.NoError(t, os.Mkdir(file, 0o700))
	require.NoError(t, client.BgSave(t.Context()).Err())
	luatomictest.Eventually(t, time.Minute, "the snapshot fails", func() bool {
		return strings.Contains(client.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
	})
	return func() { require.NoError(t, os.Remove(file)) }
}
