package show_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/luatomic/luatomic/internal/show"
)

func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"mail für Ann":          "mail für Ann",
		"\x1b[2J\nluatomic: x":  `\x1b[2J\nluatomic: x`,
		"a\u009b31m":            `a\u009b31m`,
		"a\u202eb\u2066c\u200b": `a\u202eb\u2066c\u200b`,
		"\xff\xfe\ufffd":        `\xff\xfe` + "\ufffd",
		"tab\tand\x00":          `tab\tand\x00`,
	} {
		require.Equal(t, want, show.Text(100, text))
	}
	require.Equal(t, "äää…", show.Text(3, "ääää"))
	require.Equal(t, "a\n\tb"+`\x1b`, show.Lines(100, "a\n\tb\x1b"))
}

func TestWidth(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"":                   0,
		"mail für Ann":       12,
		"漢字":                 4,
		"カナ ｶﾅ":              7,
		"한글":                 4,
		"\u1112\u1161\u11ab": 2, // the same syllable in three parts
		"e\u0301":            1,
		"🚀":                  2,
		"⌚":                  2,
		"𠀀":                  2,
		"│─█":                3,
		"ไทย":                3,
		"ที่":                1,
		"（）":                 4,
	} {
		require.Equal(t, want, show.Width(text), text)
	}
}

func TestCellIsCutByColumns(t *testing.T) {
	t.Parallel()
	require.Equal(t, "漢字", show.Cell(4, "漢字"))
	require.Equal(t, "漢…", show.Cell(3, "漢字"))
	require.Equal(t, "漢a…", show.Cell(3, "漢ab"))
	require.Equal(t, "…", show.Cell(1, "漢"))
	require.Equal(t, "e\u0301e\u0301", show.Cell(2, "e\u0301e\u0301"))
	require.Equal(t, `a…`, show.Cell(4, "a\x1b[2J"), "no part of an escape")
	rapid.Check(t, func(t *rapid.T) {
		text, most := rapid.String().Draw(t, "text"), rapid.IntRange(0, 20).Draw(t, "most")
		require.LessOrEqual(t, show.Width(strings.TrimSuffix(show.Cell(most, text), "…")), most)
	})
}

func TestMessageKeepsItsEnd(t *testing.T) {
	t.Parallel()
	long := "cannot do " + strings.Repeat("x", 10_000) + "\x1b; the cure"
	got := show.Message(300, long)
	require.Equal(t, 301, len([]rune(got))+3-6, got) // \x1b is four characters for one
	require.True(t, strings.HasPrefix(got, "cannot do xxx"))
	require.True(t, strings.HasSuffix(got, `\x1b; the cure`))
	require.Equal(t, `short\n`, show.Message(300, "short\n"))
}

// Whatever the text, nothing is left that a terminal would obey.
func TestNothingIsLeftThatMovesOthers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		for _, shown := range []string{show.Text(50, text), show.Message(50, text)} {
			for _, r := range shown {
				require.True(t, unicode.IsPrint(r) || r == '\ufffd', "%q in %q", r, shown)
			}
		}
	})
}
