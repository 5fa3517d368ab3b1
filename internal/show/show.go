// Package show makes the texts of others safe for a terminal, a log line and a page.
package show

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is a text of somebody else on one line: at most so many characters, and none that moves, hides or turns others
// around.
func Text(most int, text string) string { return cleaned(most, text, "", one) }

// Cell is Text of at most so many columns of a terminal.
func Cell(most int, text string) string { return cleaned(most, text, "", Width) }

// Lines is Text that keeps its line ends and tabs.
func Lines(most int, text string) string { return cleaned(most, text, "\n\t", one) }

// one is the size of each character, where characters are counted.
func one(string) int { return 1 }

// cleaned is the part of the text whose characters, as they are shown, have at most that size.
func cleaned(most int, text, keep string, size func(shown string) int) string {
	var b strings.Builder
	n := 0
	for i, r := range text {
		shown := inert(r, text[i:], keep)
		if n += size(shown); n > most {
			b.WriteString("…")
			break
		}
		b.WriteString(shown)
	}
	return b.String()
}

// inert is a character, the first of the text, in a form that a terminal prints.
func inert(r rune, text, keep string) string {
	_, size := utf8.DecodeRuneInString(text)
	switch {
	case r == utf8.RuneError && size <= 1:
		return fmt.Sprintf(`\x%02x`, text[0])
	case unicode.IsPrint(r), strings.ContainsRune(keep, r):
		return string(r)
	}
	return strings.Trim(strconv.QuoteRuneToASCII(r), "'")
}

// Message is Text of a message whose end says what to do: one that is too long loses its middle.
func Message(most int, text string) string {
	n := utf8.RuneCountInString(text)
	if n <= most {
		return Text(n, text)
	}
	all := []rune(text)
	head, tail := all[:most*2/3], all[len(all)-most/3:]
	return Text(len(head), string(head)) + "…" + Text(len(tail), string(tail))
}

// escape is what Label writes in place of a byte.
var escape = regexp.MustCompile(`\\x[0-9a-f]{2}`)

// Label is a name as valid UTF-8, in full: a byte that is no part of a character is written as \xe9, and the backslash
// of a text that looks like that as \x5c. Two names have two labels; one without either is its own.
func Label(name string) string {
	if strings.Contains(name, `\x`) {
		name = escape.ReplaceAllStringFunc(name, func(text string) string { return `\x5c` + text[1:] })
	}
	if utf8.ValidString(name) {
		return name
	}
	var b strings.Builder
	for i, r := range name {
		if _, size := utf8.DecodeRuneInString(name[i:]); r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, `\x%02x`, name[i])
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Name is the name of something, or the id of a job, in an output: it is written as its Label. JSON has only
// characters: each byte that is no part of one would become U+FFFD, and two names would be one.
type Name string

func (n Name) String() string               { return Label(string(n)) }
func (n Name) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// Names are several of them.
func Names(names []string) []Name {
	all := make([]Name, len(names))
	for i, name := range names {
		all[i] = Name(name)
	}
	return all
}

// Keys is the map with its keys in another form, by Label or Named: encoding/json writes a key that is a string as it
// is, whatever its type.
func Keys[V any](from map[string]V, form func(string) string) map[string]V {
	all := make(map[string]V, len(from))
	for name, of := range from {
		all[form(name)] = of
	}
	return all
}

// Named is the name that has this label. A text that is no label of a name is a name itself: no byte is written in two
// ways.
func Named(label string) string {
	name := escape.ReplaceAllStringFunc(label, func(text string) string {
		b, _ := hex.DecodeString(text[2:])
		return string(b)
	})
	if Label(name) != label {
		return label
	}
	return name
}

// wide are the first and the last of the characters that take two columns, by East Asian Width (W and F of Unicode 15).
// A range passes over characters that are not assigned, or combine.
var wide = [][2]rune{
	{0x1100, 0x115f}, {0x231a, 0x231b}, {0x2329, 0x232a}, {0x23e9, 0x23ec}, {0x23f0, 0x23f0}, {0x23f3, 0x23f3},
	{0x25fd, 0x25fe}, {0x2614, 0x2615}, {0x2648, 0x2653}, {0x267f, 0x267f}, {0x2693, 0x2693}, {0x26a1, 0x26a1},
	{0x26aa, 0x26ab}, {0x26bd, 0x26be}, {0x26c4, 0x26c5}, {0x26ce, 0x26ce}, {0x26d4, 0x26d4}, {0x26ea, 0x26ea},
	{0x26f2, 0x26f3}, {0x26f5, 0x26f5}, {0x26fa, 0x26fa}, {0x26fd, 0x26fd}, {0x2705, 0x2705}, {0x270a, 0x270b},
	{0x2728, 0x2728}, {0x274c, 0x274c}, {0x274e, 0x274e}, {0x2753, 0x2755}, {0x2757, 0x2757}, {0x2795, 0x2797},
	{0x27b0, 0x27b0}, {0x27bf, 0x27bf}, {0x2b1b, 0x2b1c}, {0x2b50, 0x2b50}, {0x2b55, 0x2b55}, {0x2e80, 0x303e},
	{0x3041, 0x3247}, {0x3250, 0x4dbf}, {0x4e00, 0xa4c6}, {0xa960, 0xa97c}, {0xac00, 0xd7a3}, {0xf900, 0xfaff},
	{0xfe10, 0xfe6b}, {0xff01, 0xff60}, {0xffe0, 0xffe6}, {0x16fe0, 0x1b2fb}, {0x1f004, 0x1f004},
	{0x1f0cf, 0x1f0cf}, {0x1f18e, 0x1f18e}, {0x1f191, 0x1f19a}, {0x1f200, 0x1f320}, {0x1f32d, 0x1f335},
	{0x1f337, 0x1f37c}, {0x1f37e, 0x1f393}, {0x1f3a0, 0x1f3ca}, {0x1f3cf, 0x1f3d3}, {0x1f3e0, 0x1f3f0},
	{0x1f3f4, 0x1f3f4}, {0x1f3f8, 0x1f43e}, {0x1f440, 0x1f440}, {0x1f442, 0x1f4fc}, {0x1f4ff, 0x1f53d},
	{0x1f54b, 0x1f54e}, {0x1f550, 0x1f567}, {0x1f57a, 0x1f57a}, {0x1f595, 0x1f596}, {0x1f5a4, 0x1f5a4},
	{0x1f5fb, 0x1f64f}, {0x1f680, 0x1f6c5}, {0x1f6cc, 0x1f6cc}, {0x1f6d0, 0x1f6d2}, {0x1f6d5, 0x1f6df},
	{0x1f6eb, 0x1f6ec}, {0x1f6f4, 0x1f6ff}, {0x1f7e0, 0x1f7f0}, {0x1f90c, 0x1f93a}, {0x1f93c, 0x1f945},
	{0x1f947, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd},
}

// Width is how many columns of a terminal the text takes: two for a wide character, none for one that combines with
// that before it. It counts character by character, as wcwidth and most terminals do.
func Width(text string) (n int) {
	for _, r := range text {
		n += RuneWidth(r)
	}
	return n
}

// RuneWidth is the width of one character.
func RuneWidth(r rune) int {
	const medialJamo, lastJamo = 0x1160, 0x11ff // of a syllable of Hangul, which the first one draws
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me), r >= medialJamo && r <= lastJamo:
		return 0
	}
	_, found := slices.BinarySearchFunc(wide, r, func(of [2]rune, r rune) int {
		switch {
		case of[1] < r:
			return -1
		case of[0] > r:
			return 1
		}
		return 0
	})
	if found {
		return 2
	}
	return 1
}

// PrometheusLabel is the name of an attribute as a label of Prometheus: dots become underscores.
func PrometheusLabel(name string) string { return strings.ReplaceAll(name, ".", "_") }
