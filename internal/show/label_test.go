package show_test

import (
	"regexp"
	"strconv"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/luatomic/luatomic/internal/show"
)

// unlabelled is the name of a label.
func unlabelled(label string) string {
	return regexp.MustCompile(`\\x[0-9a-f]{2}`).ReplaceAllStringFunc(label, func(text string) string {
		b, _ := strconv.ParseUint(text[2:], 16, 8)
		return string([]byte{byte(b)})
	})
}

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
		require.Equal(t, name, unlabelled(label))
	})
}
