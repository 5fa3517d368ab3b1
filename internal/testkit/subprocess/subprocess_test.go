package subprocess_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/subprocess"
)

func TestAProgramAnswersLineByLine(t *testing.T) {
	t.Parallel()
	p := subprocess.Start(t, exec.Command("cat"))
	var got map[string]int
	p.Ask(map[string]int{"n": 1}, &got)
	require.Equal(t, map[string]int{"n": 1}, got)
	require.True(t, p.Running())
	require.NoError(t, p.End())
	require.False(t, p.Running())
}

func TestAProgramIsKilled(t *testing.T) {
	t.Parallel()
	p := subprocess.Start(t, exec.Command("sh", "-c", "echo oops >&2; echo up; exec sleep 60"))
	require.Equal(t, "up", string(p.Line(10*time.Second)))
	p.Kill()
	require.False(t, p.Running())
	require.Equal(t, "oops\n", p.Stderr())
	require.Error(t, p.End())
}

func TestTheFirstFitProgramIsFound(t *testing.T) {
	t.Parallel()
	require.Equal(t, "true", subprocess.Find(t, "", []string{"no-such-program"}, []string{"false"}, []string{"true"}))
}
