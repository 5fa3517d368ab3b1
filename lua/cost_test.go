package lua_test

import (
	"context"
	"crypto/fips140"
	"crypto/sha1"
	"math"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// Not parallel: AllocsPerRun counts those of the whole process.
func TestAllocationsOfACall(t *testing.T) {
	client, key := luatomictest.Client(t), luatomictest.Namespace(t)
	s, owner := newScript("keep", "return redis.call('SETNX', KEYS[1], ARGV[1])", lua.RetrySafe), "owner"
	// A context that can end has the call run on a goroutine of its own.
	for ctx, most := range map[context.Context]float64{context.Background(): 5, t.Context(): 6} {
		call := func() {
			c := lua.NewCall(s, 1, 1)
			c.Key("key", key)
			c.EndKeys()
			c.String(&owner)
			if _, err := lua.Run(ctx, client, c, decodeInt); err != nil {
				t.Error(err)
			}
		}
		call()
		n := math.Inf(1)
		for range 5 { // a busy machine has some end idle goroutines, which the next calls replace
			n = min(n, testing.AllocsPerRun(200, call))
		}
		t.Logf("%v allocations", n)
		require.LessOrEqual(t, n, most)
	}
}

func TestAllocationsOfAReply(t *testing.T) {
	client, key := luatomictest.Client(t), luatomictest.Namespace(t)
	s := newScript("row", "return {1, 'text', 1700000000123}", lua.RetrySafe)
	type row struct {
		N  int64
		S  string
		At time.Time
	}
	call := func() {
		got, err := lua.Run(t.Context(), client, newCall(s, key), func(r *lua.Reply) row {
			r.Tuple(3)
			return row{r.Int("n"), r.String("s"), r.TimeMilli("at")}
		})
		if err != nil || got.S != "text" {
			t.Error(got, err)
		}
	}
	call()
	n := testing.AllocsPerRun(200, call)
	t.Logf("%v allocations", n)
	require.LessOrEqual(t, n, 12.0)
}

// A FIPS 140 process must not touch SHA-1: digests are constants of the generated code. The test runs this binary
// again in that mode.
func TestFIPSProcessRunsGeneratedCode(t *testing.T) {
	if os.Getenv("LUATOMIC_FIPS_CHILD") == "" {
		cmd := exec.CommandContext(within(t, time.Minute), os.Args[0], "-test.run=^TestFIPSProcessRunsGeneratedCode$",
			"-test.v")
		cmd.Env = append(os.Environ(), "GODEBUG=fips140=only", "LUATOMIC_FIPS_CHILD=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestFIPSProcessRunsGeneratedCode")
		return
	}
	require.True(t, fips140.Enabled())
	require.Panics(t, func() { sha1.Sum(nil) }, "SHA-1 is forbidden here")
	fake := startFake(t, func(string, int) string { return "*2\r\n:0\r\n:1" })
	p := queuescript.ControlParams{Control: "{q}c", Wake: "{q}w", Receipt: "{q}i", Limit: 1}
	for _, client := range []lua.Client{fake.client(t), lua.Guard(fake.client(t), held{"{q}lease", "tok"})} {
		got, err := queuescript.Control(t.Context(), client, p)
		require.NoError(t, err)
		require.Equal(t, queuescript.ControlResult{Limit: 1}, got)
	}
}
