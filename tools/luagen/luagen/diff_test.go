package luagen_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
	"github.com/stretchr/testify/require"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.go")
	write(t, path, "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\n")
	got := luagen.Diff(luagen.File{Path: path, Text: []byte("a\nB\nc\nd\ne\nf\ng\nh\ni\nj\nk\nm\nn\n")})
	want := "--- " + path + "\n+++ " + path + `
@@ -1,5 +1,5 @@
 a
-b
+B
 c
 d
 e
@@ -9,5 +9,5 @@
 i
 j
 k
-l
 m
+n
`
	require.Equal(t, want, got)
}

func TestDiffOfNewAndStaleFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.go")
	require.Equal(t, "--- /dev/null\n+++ "+path+"\n@@ -0,0 +1,1 @@\n+a\n",
		luagen.Diff(luagen.File{Path: path, Text: []byte("a\n")}))
	write(t, path, "a\n")
	require.Equal(t, "--- "+path+"\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-a\n", luagen.Diff(luagen.File{Path: path}))
}

// Whatever the change, patch(1) must be able to apply the diff.
func TestDiffApplies(t *testing.T) {
	t.Parallel()
	patch, err := exec.LookPath("patch")
	if err != nil {
		t.Skip("no patch on PATH")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		path := filepath.Join(t.TempDir(), "f.go")
		old, changed := randomLines(random), randomLines(random)
		write(t, path, old)
		diff := luagen.Diff(luagen.File{Path: path, Text: []byte(changed)})
		if old != changed {
			cmd := exec.Command(patch, "-s", path)
			cmd.Stdin = strings.NewReader(diff)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s\n%s", out, diff)
		}
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, changed, string(got))
	}
}

func randomLines(random *rand.Rand) string {
	var b strings.Builder
	b.WriteString("first\n")
	for range random.IntN(40) {
		b.WriteByte(byte('a' + random.IntN(4)))
		b.WriteByte('\n')
	}
	return b.String()
}
