package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

func TestSampleAndVerdictsFit(t *testing.T) {
	t.Parallel()
	sample := readSample(sampleText)
	require.Greater(t, len(sample), 300)
	paths := map[[2]string]bool{}
	for _, f := range sample {
		require.Len(t, f.commit, 40)
		require.Len(t, f.digest, 40)
		paths[[2]string{f.repo, f.path}] = true
	}
	verdicts, err := readVerdicts(verdictText)
	require.NoError(t, err)
	require.Greater(t, len(verdicts), 300)
	for at := range verdicts {
		require.True(t, paths[[2]string{at.repo, at.path}], "%v is no file of the sample", at)
	}
	_, err = readVerdicts("a\tb\t1:1\tK001\tperhaps\n")
	require.ErrorContains(t, err, "right or wrong")
}

func TestTableCountsWhatWasJudged(t *testing.T) {
	t.Parallel()
	s := &sampled{scripts: 1, stopped: 1, repos: []string{"o/r"}, files: luagen.VetSources([]luagen.Source{
		{File: "a.lua", Text: "redis.call('DEL', '{a}x')\nredis.call('DEL', '{a}y')\nreturn z\n"}}, nil)}
	verdicts := map[place]bool{{"o/r", "a.lua", "1:19", "K001"}: true, {"o/r", "a.lua", "3:8", "G002"}: false}
	var b bytes.Buffer
	s.table(&b, verdicts)
	require.Equal(
		t,
		"| rule | level | findings | judged | right |\n|---|---|---|---|---|\n| G002 | error | 1 | 1 | 0 % |\n"+
			"| K001 | warning | 2 | 1 | 100 % |\n| all | | 3 | 2 | 50 % |\n\nScripts: 1. Files with an error: 1 of "+
			"1, 100 %.\n"+
			"Whole scripts: 0. With an error after init and fix: 0, -.\n",
		b.String(),
	)
	b.Reset()
	s.listUnjudged(&b, verdicts)
	require.Contains(t, b.String(), "o/r\ta.lua\t2:19\tK001\n")
	require.NotContains(t, b.String(), "3:8")
}
