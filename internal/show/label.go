package show

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

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
