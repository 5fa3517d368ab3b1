package luagen

import (
	"regexp"
	"strings"
)

// prosePart is a part of the description of a script.
type prosePart struct {
	kind proseKind
	mark string // of an item: "-", or its number and a full stop
	text string
}

type proseKind int

const (
	paragraph proseKind = iota
	item                // of a list
	verbatim            // an indented line
	gap                 // an empty line
)

// itemMark begins an item of a list: a dash, or a number and a full stop.
var itemMark = regexp.MustCompile(`^(-|\d{1,3}\.) +`)

// proseParts splits a description. The lines of a paragraph are joined, and so are those of an item, which ends at the
// next item or at an empty line. An indented line stays as it is, unless it continues an item.
func proseParts(lines []string) (out []prosePart) {
	for _, line := range lines {
		mark := itemMark.FindString(line)
		last := len(out) - 1
		switch {
		case line == "":
			out = append(out, prosePart{kind: gap})
		case mark != "":
			out = append(out, prosePart{item, strings.TrimSpace(mark), line[len(mark):]})
		case last >= 0 && out[last].kind == item:
			out[last].text += " " + strings.TrimSpace(line)
		case line[0] == ' ' || line[0] == '\t':
			out = append(out, prosePart{kind: verbatim, text: line})
		case last >= 0 && out[last].kind == paragraph:
			out[last].text += " " + line
		default:
			out = append(out, prosePart{kind: paragraph, text: line})
		}
	}
	return out
}
