package luatomictest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	namespaceWords = 40 // bytes of the test's name to keep
	cleanUpFor     = 10 * time.Second
	scanCount      = 1000
)

// Namespace returns a name that no other test, process or run uses. It consists of [a-z0-9-], is shorter than 60 bytes
// and begins with the test's name. When the test ends, every key of the shared server that contains the name is
// deleted.
func Namespace(t testing.TB) string {
	t.Helper()
	random := make([]byte, 6)
	_, _ = rand.Read(random)
	name := readable(t.Name()) + "-" + hex.EncodeToString(random)
	t.Cleanup(func() { deleteNamespace(t, name) })
	return name
}

func readable(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimPrefix(name, "Test")) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == namespaceWords {
			break
		}
	}
	if short := strings.Trim(b.String(), "-"); short != "" {
		return short
	}
	return "test"
}

// deleteNamespace only logs its errors: if a test breaks the server, this must not hide the test's own failure.
func deleteNamespace(t testing.TB, name string) {
	url := shared.opened()
	if url == "" {
		return
	}
	options, err := parseURL(url)
	if err != nil {
		return
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpFor)
	defer cancel()
	if err := unlinkMatching(ctx, client, "*"+name+"*"); err != nil {
		t.Logf("luatomictest: keys of %s are left on the server: %v", name, err)
	}
}

func unlinkMatching(ctx context.Context, client *redis.Client, pattern string) error {
	var cursor uint64
	for {
		keys, next, err := client.Scan(ctx, cursor, pattern, scanCount).Result()
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			if err := client.Unlink(ctx, keys...).Err(); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
