package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/drill/history"
)

// The command finds a violation in a file, and writes the part that shows it, half-written lines or not.
func TestCheckAndShrinkAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, small := filepath.Join(dir, "history"), filepath.Join(dir, "small")
	log, err := history.Open(file, "caller")
	require.NoError(t, err)
	for _, id := range []string{"1", "2", "3"} {
		log.Add(history.Record{Kind: history.Call, Of: history.RPC + id, Text: "once"})
		log.Add(history.Record{Kind: history.Run, Of: history.RPC + id, N: 1})
		log.Add(history.Record{Kind: history.End, Of: history.RPC + id, Text: history.OK})
	}
	var out, errs bytes.Buffer
	require.Zero(t, check([]string{file}, &out, &errs), out.String())

	half, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = half.WriteString("\n{\"at\":17,\"ki")
	require.NoError(t, err)
	require.NoError(t, half.Close())
	log.Add(history.Record{Kind: history.Run, Of: history.RPC + "2", N: 2})
	require.Equal(t, 1, check([]string{"-shrink", small, file}, &out, &errs))
	require.Contains(t, out.String(), string(history.Twice)+": call 2")
	require.Contains(t, out.String(), "10 records, 1 half-written; violations: 1")
	all, torn, err := history.ReadFile(small)
	require.NoError(t, err)
	require.Zero(t, torn)
	require.Len(t, all, 2)
	require.Equal(t, 1, check([]string{small}, &out, &errs), "the part shows the same")
	require.Empty(t, errs.String())
	require.Equal(t, 2, check(nil, &out, &errs))
	require.Equal(t, 2, check([]string{filepath.Join(dir, "none")}, &out, &errs))
}
