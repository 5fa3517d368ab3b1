package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkProcess measures whole runs of the program, from the start of the process to its end: 100 scripts that are
// new, the same when nothing has changed, and vet of 450.
func BenchmarkProcess(b *testing.B) {
	dir := b.TempDir()
	binary := filepath.Join(dir, "luagen")
	out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(b, err, string(out))
	text, err := os.ReadFile("luagen/testdata/apart/scripts/queue_push.lua")
	require.NoError(b, err)
	write := func(folder string, n int) string {
		root := filepath.Join(dir, folder)
		require.NoError(b, os.MkdirAll(root, 0o755))
		require.NoError(b, os.WriteFile(filepath.Join(root, "go.mod"), []byte("module example.com/app\n"), 0o600))
		for i := range n {
			script := strings.ReplaceAll(string(text), "QueuePush", fmt.Sprintf("S%d", i))
			require.NoError(b, os.WriteFile(filepath.Join(root, fmt.Sprintf("s%d.lua", i)), []byte(script), 0o600))
		}
		return root
	}
	hundred, many := write("hundred", 100), write("many", 450)
	measure := func(name string, before func(), args ...string) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				before()
				b.StartTimer()
				if out, err := exec.Command(binary, args...).CombinedOutput(); err != nil {
					b.Fatal(err, string(out))
				}
			}
		})
	}
	measure("new/100", func() {
		files, err := filepath.Glob(filepath.Join(hundred, "*.lua.go"))
		require.NoError(b, err)
		for _, file := range files {
			require.NoError(b, os.Remove(file))
		}
	}, hundred)
	measure("unchanged/100", func() {}, hundred)
	measure("vet/450", func() {}, "vet", many)
}
