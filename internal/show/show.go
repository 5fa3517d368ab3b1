// Package show makes the texts of others safe for a terminal, a log line and a page.
package show

import (
	"fmt"
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
