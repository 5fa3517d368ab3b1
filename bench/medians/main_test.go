package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMedians(t *testing.T) {
	t.Parallel()
	in := `goos: linux
BenchmarkPush/n=1/luatomic-2     100     900 ns/op     7 jobs/s
BenchmarkPush/n=1/asynq-2        100     50 ns/op
some other line
BenchmarkPush/n=1/luatomic-2     100     100 ns/op     123456.7 jobs/s
BenchmarkPush/n=1/luatomic-2     100     0.01234 ns/op     8 jobs/s
PASS
`
	var out strings.Builder
	require.NoError(t, run(strings.NewReader(in), &out))
	require.Equal(t, `| benchmark | median of each figure |
|---|---|
| Push/n=1/luatomic | 100 ns/op, 8 jobs/s |
| Push/n=1/asynq | 50 ns/op |
`, out.String())
}

func TestInputWithoutFigures(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(strings.NewReader("FAIL\n"), &strings.Builder{}), "go test -bench")
	require.ErrorContains(t, run(strings.NewReader("BenchmarkX 1 2 ns/op 3\n"), &strings.Builder{}), "without a unit")
}
