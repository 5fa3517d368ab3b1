package luagen_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
	"github.com/stretchr/testify/require"
)

func TestParseReadsTheWholeHeader(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/lock/lock_release.lua")
	require.NoError(t, err)
	s, diags := luagen.Parse("lock_release.lua", string(text))
	require.Empty(t, diags)
	require.Equal(t, "LockRelease", s.GoName)
	require.Equal(t, "only the owner's lock is removed", s.Contract.Prose)
	require.Equal(t, "safe", s.Retry.Word)
	require.Equal(t, luagen.Key{Name: "lock", Type: "hash", Template: "lock:{$name}", Prose: "o owner, f fence",
		Pos: luagen.Pos{Line: 10, Col: 14}}, s.Keys[0])
	require.Equal(t, luagen.Tuple, s.Reply.Kind)
	require.Equal(t, []luagen.EnumValue{
		{Name: "free", Value: 0, Pos: luagen.Pos{Line: 13, Col: 26}},
		{Name: "held", Value: 1, Pos: luagen.Pos{Line: 13, Col: 34}},
		{Name: "lost", Value: 5, Pos: luagen.Pos{Line: 13, Col: 42}},
	}, s.Reply.Fields[0].Type.Values)
	require.Equal(t, "O(1)", s.Cost)
}

// A tag goes on where its line is indented; positions still point into the file.
func TestPositionsOnContinuedLines(t *testing.T) {
	t.Parallel()
	src := "--- X does.\n---@readonly\n---@reply (a int,\n---        b wrong)\n\nreturn {1, 2}\n"
	_, diags := luagen.Parse("x.lua", src)
	require.Len(t, diags, 1)
	require.Equal(t, luagen.Pos{Line: 4, Col: 14}, diags[0].Pos)
	require.Equal(t, "x.lua:4:14: H005 \"wrong\" is not a type", diags[0].Error())
	require.Contains(t, diags[0].Format(src), "   4 | ---        b wrong)\n     |              ^^^^^\n     = types are")
}

// Carets stand under the place with tabs, too, and never leave the line.
func TestFormatKeepsTabs(t *testing.T) {
	t.Parallel()
	d := luagen.Diagnostic{File: "x.lua", Pos: luagen.Pos{Line: 1, Col: 3}, Width: 99, Rule: "S001", Message: "m"}
	require.Equal(t, "x.lua:1:3: S001 m\n   1 | \t\tab\n     | \t\t^^\n", d.Format("\t\tab"))
}

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*/*.lua", "testdata/*/scripts/*.lua"} {
		files, err := filepath.Glob(pattern)
		require.NoError(f, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(f, err)
			f.Add(string(text))
		}
	}
	// A key bound to an index below the first one.
	f.Add("---@key a\n\nlocal b = KEYS[0]\nredis.call('DEL', b)\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, diags := luagen.Parse("fuzz.lua", text)
		diags = append(diags, luagen.Check([]*luagen.Script{s})...)
		for _, d := range diags {
			if d.Format(text) == "" || d.Rule == "" || d.Pos.Line < 1 || d.Pos.Col < 1 {
				t.Fatalf("bad diagnostic %#v", d)
			}
		}
	})
}
