package luatomictest_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/stretchr/testify/require"
)

// rerun runs tests of this binary in a new process, which chooses its server again.
func rerun(t *testing.T, pattern string, env ...string) (output string, ok bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run", pattern)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

const urlTest = "^TestURLIsTheSameServerEachTime$"

func TestServerChoiceByVariable(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	output, ok := rerun(t, urlTest, "LUATOMIC_REDIS_URL="+server.URL(), "LUATOMIC_REQUIRE=docker", "PATH=")
	require.True(t, ok, output)
	require.Equal(t, 1, strings.Count(output, ", LUATOMIC_REDIS_URL"), "it says once which server it took: %s", output)
}

// The path of a Unix socket has about a hundred bytes, that of a temporary folder may have more.
func TestServerUnderALongTemporaryFolder(t *testing.T) {
	t.Parallel()
	temp := filepath.Join(t.TempDir(), strings.Repeat("x", 110))
	require.NoError(t, os.Mkdir(temp, 0o755))
	output, ok := rerun(t, urlTest, "LUATOMIC_REDIS_URL=", "LUATOMIC_REQUIRE=local", "TMPDIR="+temp)
	require.True(t, ok, output)
}

// The server that a process starts for its tests refuses what the tests of other packages would notice.
func TestTheSharedServerOfAProcessIsRestricted(t *testing.T) {
	t.Parallel()
	if os.Getenv("LUATOMIC_REDIS_URL") != "" { // another program's server, which stays as it is
		output, ok := rerun(t, "^"+t.Name()+"$", "LUATOMIC_REDIS_URL=", "LUATOMIC_REQUIRE=local")
		require.True(t, ok, output)
		return
	}
	err := luatomictest.Client(t).Do(t.Context(), "ACL", "DELUSER", "nobody").Err()
	require.ErrorContains(t, err, "NOPERM")
}

// secret is a part of a password in a URL.
const secret = "s3cr"

func TestServerChoiceFailsLoudly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"nobody at the URL": {[]string{"LUATOMIC_REDIS_URL=redis://127.0.0.1:1"}, "LUATOMIC_REDIS_URL does not answer"},
		"not a URL": {
			[]string{"LUATOMIC_REDIS_URL=localhost:6379"},
			"LUATOMIC_REDIS_URL: server URL: invalid URL scheme; write redis://HOST:PORT",
		},
		"a password that is not escaped": {
			[]string{"LUATOMIC_REDIS_URL=redis://user:" + secret + "/x@127.0.0.1:6379"},
			"LUATOMIC_REDIS_URL: server URL: it cannot be read; write",
		},
		"a value that is not known": {
			[]string{"LUATOMIC_REDIS_URL=", "LUATOMIC_REQUIRE=dokcer"},
			`LUATOMIC_REQUIRE is "dokcer": it can be docker or local`,
		},
		"a protocol that is not known": {
			[]string{"LUATOMIC_PROTOCOL=RESP2"}, `LUATOMIC_PROTOCOL is "RESP2": it can be 2 or 3`,
		},
		"nothing installed": {
			[]string{"LUATOMIC_REDIS_URL=", "LUATOMIC_REQUIRE=local", "PATH=" + t.TempDir()},
			"apt-get install redis-server",
		},
		"no container source, but one is required": {
			[]string{"LUATOMIC_REDIS_URL=", "LUATOMIC_REQUIRE=docker", withoutSources + "=1"},
			"call luatomictest.Main(m, container.Start)",
		},
		"no engine, but a container is required": {
			[]string{"LUATOMIC_REDIS_URL=", "LUATOMIC_REQUIRE=docker", withoutEngine + "=1"},
			"LUATOMIC_REQUIRE is docker, but no container: no Docker engine answers",
		},
		"no engine, but an image is named": {
			[]string{"LUATOMIC_REDIS_URL=", "LUATOMIC_REQUIRE=", "LUATOMIC_REDIS_IMAGE=valkey", withoutEngine + "=1"},
			"LUATOMIC_REDIS_IMAGE is set, but no container: no Docker engine answers",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, ok := rerun(t, urlTest, c.env...)
			require.False(t, ok, output)
			require.Contains(t, output, c.want)
			require.NotContains(t, output, "--- SKIP")
			require.NotContains(t, output, secret)
		})
	}
}

// Without a source a local server is used, and no Docker engine is contacted.
func TestServerChoiceWithoutSources(t *testing.T) {
	t.Parallel()
	output, ok := rerun(t, urlTest, "LUATOMIC_REDIS_URL=", "LUATOMIC_REQUIRE=", withoutSources+"=1")
	require.True(t, ok, output)
	require.Regexp(t, `luatomictest: \w+ [0-9.]+, \S+/(redis|valkey)-server`, output)
	require.NotContains(t, output, "no container")
}

// Without an engine a local server is used where no container is required.
func TestServerChoiceWithoutAnEngine(t *testing.T) {
	t.Parallel()
	output, ok := rerun(t, urlTest,
		"LUATOMIC_REDIS_URL=", "LUATOMIC_REQUIRE=", "LUATOMIC_REDIS_IMAGE=", withoutEngine+"=1")
	require.True(t, ok, output)
	require.Contains(t, output, "no container, a local server is tried: no Docker engine answers")
	require.Regexp(t, `/(redis|valkey)-server`, output)
}

func TestMainStopsTheServerItStarted(t *testing.T) {
	t.Parallel()
	output, ok := rerun(t, "^TestPrintURL$", "LUATOMIC_REDIS_URL=", "LUATOMIC_REQUIRE=local", childVariable+"=1")
	require.True(t, ok, output)
	found := regexp.MustCompile(`URL=(unix://\S+)`).FindStringSubmatch(output)
	require.NotNil(t, found, output)
	u, err := url.Parse(found[1])
	require.NoError(t, err)
	require.NoFileExists(t, u.Path)
}

func TestMainReportsALeftGoroutine(t *testing.T) {
	t.Parallel()
	output, ok := rerun(t, "^TestLeaveAGoroutine$", childVariable+"=1")
	require.False(t, ok, output)
	require.Contains(t, output, "goroutines left over")
	require.Contains(t, output, "TestLeaveAGoroutine")
}

// TestPrintURL is the child of TestMainStopsTheServerItStarted.
func TestPrintURL(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		t.Logf("URL=%s", luatomictest.URL(t))
	}
}

// TestLeaveAGoroutine is the child of TestMainReportsALeftGoroutine.
func TestLeaveAGoroutine(*testing.T) {
	if os.Getenv(childVariable) != "" {
		go func() { select {} }()
	}
}
