package luagen

import (
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/internal/spelling"
)

// checkLoose reports tags after the end of the header, and comments that look like tags: luagen would ignore both.
// Long comments and texts are not read.
func (h *headerParser) checkLoose() {
	for _, at := range h.Body.Lines {
		text, _, _ := strings.Cut(h.Source[at.Off:], "\n")
		name := strayTag(text)
		if at.Line == h.end {
			name = nearestTag(atWord(text)) // a mistyped one ended the header
		}
		alone := strings.TrimSpace(h.Source[at.Off-at.Col+1:at.Off]) == ""
		switch {
		case name == "" || !alone || at.Line < h.end:
		case at.Col == 1 && strings.HasPrefix(text, "---@"):
			h.fail(Pos{at.Line, 4}, len(name)+1, "H001", "@"+name+" stands outside the header",
				"the header is the unbroken block of --- lines at the top of the file; write --- for an empty line "+
					"inside it")
		default:
			h.fail(Pos{at.Line, at.Col}, len(strings.TrimSpace(text)), "H001",
				"@"+name+" in a comment, which is no tag",
				"write ---@"+name+" at the start of the line, in the header; to mean the word, do not begin the "+
					"comment with it")
		}
	}
}

// dashes are what stands before the @ of a tag, rightly or wrongly.
const dashes = "- \t"

// strayTag returns the tag that a comment begins with, whatever its dashes are, or "" if it begins with none.
func strayTag(comment string) string {
	if name := atWord(comment); slices.Contains(tagNames, name) {
		return name
	}
	return ""
}

// atWord returns the word after the dashes and the @ that a comment begins with, or "" if there is no @.
func atWord(comment string) string {
	name, ok := strings.CutPrefix(strings.TrimLeft(comment, dashes), "@")
	if !ok {
		return ""
	}
	return tagName(name)
}

// tagName is the word that a tag begins with.
func tagName(text string) string {
	if i := strings.IndexAny(text, " \t\r"); i >= 0 {
		return text[:i]
	}
	return text
}

// elsewhereTags maps tags of other documentation tools to ours.
var elsewhereTags = map[string]string{"param": "arg", "return": "reply", "returns": "reply"}

// nearestTag returns the tag that a mistyped word stands for, or "" if no tag is similar.
func nearestTag(word string) string {
	if tag := elsewhereTags[word]; tag != "" {
		return tag
	}
	return spelling.Nearest(word, tagNames)
}
