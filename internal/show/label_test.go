package show_test

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/luatomic/luatomic/internal/show"
)

func TestTwoNamesHaveTwoLabels(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"mail": "mail", "für": "für", `App\Mail`: `App\Mail`, `a\xyz`: `a\xyz`, `a\xE9`: `a\xE9`, "\ufffd": "\ufffd",
		"a\xe9": `a\xe9`, `a\xe9`: `a\x5cxe9`, `a\x5cxe9`: `a\x5cx5cxe9`, "\\\xe9": `\\xe9`, "\\x5\xe9": `\x5\xe9`,
		"\xe9\u200b": `\xe9` + "\u200b", "\xe9\\u200b": `\xe9\u200b`,
	} {
		require.Equal(t, want, show.Label(name), "%q", name)
	}
	piece := rapid.SampledFrom([]string{`\`, "x", "e", "9", "5", "c", "\xe9", "\xc3", "ä", "\u200b", "\ufffd"})
	rapid.Check(t, func(t *rapid.T) {
		name := ""
		for _, p := range rapid.SliceOfN(piece, 0, 12).Draw(t, "name") {
			name += p
		}
		label := show.Label(name)
		require.True(t, utf8.ValidString(label))
		require.Equal(t, name, show.Named(label))
	})
}

// A text that no name is written as is a name.
func TestATextThatIsNoLabelIsAName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`a\x41`: `a\x41`, `\x5cx`: `\x5cx`, `\xc3\xa4`: `\xc3\xa4`, "ä\xe9": "ä\xe9", "\xff": "\xff",
		`\xe9 "\xE9"`: "\xe9 \"\\xE9\"",
	} {
		require.Equal(t, want, show.Named(text), "%q", text)
	}
}
