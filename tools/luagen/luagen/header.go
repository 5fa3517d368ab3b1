package luagen

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// tagParsers maps each tag to the method that reads it.
var tagParsers = map[string]func(*headerParser, *scanner){
	"script":   (*headerParser).script,
	"retry":    (*headerParser).retry,
	"contract": (*headerParser).contract,
	"readonly": (*headerParser).readonly,
	"guard":    (*headerParser).guard,
	"slots":    (*headerParser).slots,
	"merge":    (*headerParser).merge,
	"key":      (*headerParser).key,
	"keys":     (*headerParser).keys,
	"arg":      (*headerParser).arg,
	"args":     (*headerParser).args,
	"reply":    (*headerParser).reply,
	"error":    (*headerParser).errorCode,
	"cost":     (*headerParser).cost,
	"allow":    (*headerParser).allow,
	"uses":     (*headerParser).usesTag,
}

// tagNames is in the order in which tags are usually written.
var tagNames = []string{
	"script",
	"contract",
	"retry",
	"readonly",
	"guard",
	"slots",
	"merge",
	"key",
	"keys",
	"arg",
	"args",
	"reply",
	"error",
	"cost",
	"uses",
	"allow",
}

// headerParser fills one Script from the comment block at the top of its file.
type headerParser struct {
	*Script
	diags *Diagnostics
	seen  map[string]bool // tags that occur once
	names map[string]Pos  // keys, arguments and the group share one name space
	end   int             // the first line behind the header; 0 where all lines are of it
}

func (h *headerParser) fail(pos Pos, width int, rule, message, cure string) {
	// Where keys and arguments are in doubt, checks of the body would only mislead.
	h.partial = h.partial || slices.Contains(doubtful, rule)
	*h.diags = append(*h.diags, Diagnostic{h.File, pos, max(1, width), rule, message, cure})
}

var doubtful = []string{"H001", "H002", "H003", "H004", "H005", "H007", "M001"}

// headerTag is one tag with its continuation lines.
type headerTag struct {
	name string
	pos  Pos // of the name
	text tagText
}

// parseHeader reads the header, tag by tag.
func (h *headerParser) parseHeader() {
	for _, tag := range h.split() {
		parse, ok := tagParsers[tag.name]
		if !ok {
			cure := "tags are " + strings.Join(tagNames, " ")
			if near := nearestTag(tag.name); near != "" {
				cure = "did you mean @" + near + "?"
			}
			h.fail(tag.pos, len(tag.name)+1, "H002", fmt.Sprintf("unknown tag %+q", "@"+tag.name), cure)
			continue
		}
		parse(h, newScanner(tag.text))
	}
	h.finish()
}

// linesAbove counts the lines of a comment of two dashes above the header, such as a licence, with empty lines behind
// it. A line that looks like a tag is none of them.
func linesAbove(source string) int {
	count := 0
	for line := range strings.SplitSeq(source, "\n") {
		text := strings.TrimRight(line, " \t\r")
		switch {
		case strings.HasPrefix(text, "---"):
			return count
		case strings.HasPrefix(text, "--[") || atWord(text) != "" || markerIn(text).found,
			!strings.HasPrefix(text, "--") && (text != "" || count == 0):
			return 0
		}
		count++
	}
	return 0
}

// split separates prose from tags. The header ends at the first line that does not start with three dashes.
func (h *headerParser) split() []headerTag {
	var tags []headerTag
	above := linesAbove(h.Source)
	line, open := 0, false // open: the line before belongs to a tag
	for text := range strings.SplitSeq(h.Source, "\n") {
		if line++; line <= above {
			continue
		}
		text = strings.TrimRight(text, " \t\r")
		if line == 1 && isExpanded(text) {
			continue
		}
		body, ok := strings.CutPrefix(text, "---")
		if ok {
			h.checkText(text, line)
			h.checkGuess(text, line)
		}
		switch {
		case !ok || strings.HasPrefix(body, "[["):
			h.end = line
			return tags
		case strings.HasPrefix(body, "@"):
			name := tagName(body[1:])
			tag := headerTag{name: name, pos: Pos{line, 4}}
			tag.text.add(body[1+len(name):], Pos{line, 5 + len(name)})
			tags = append(tags, tag)
		case strayTag(body) != "" && (len(tags) == 0 || !strings.HasPrefix(body, "  ")):
			h.fail(Pos{line, 4}, len(body), "H001", "a tag apart from its three dashes, which is prose",
				"write ---"+strings.TrimLeft(body, dashes))
		case len(tags) == 0:
			h.prose(body, line)
		case body == "":
		case strings.HasPrefix(body, "  "):
			if h.checkContinuation(body, line, open) {
				tags[len(tags)-1].text.add(body, Pos{line, 4})
			}
		default:
			h.fail(Pos{line, 4}, len(body), "H001", "prose after a tag",
				"move it above the first tag, or indent it by two spaces to continue the tag before it")
		}
		open = body != ""
	}
	return tags
}

// checkContinuation reports an indented line that continues no tag, and one that looks like a tag of its own.
func (h *headerParser) checkContinuation(body string, line int, open bool) bool {
	text := strings.TrimLeft(body, " \t")
	at := Pos{line, 4 + len(body) - len(text)}
	name := strayTag(text)
	switch {
	case !open:
		h.fail(at, len(text), "H001", "a continued line that does not follow its tag",
			"remove the empty line between them, or move the text above the first tag")
	case name != "":
		h.fail(at, len(name)+1, "H001", "@"+name+" on a line that continues the tag before it",
			"write ---@"+name+" to begin a tag; to mean the word, do not begin the line with it")
	default:
		return true
	}
	return false
}

// checkText reports what a comment in Go cannot hold, and a line break that only Lua sees.
func (h *headerParser) checkText(text string, line int) {
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 || r == 0 || r == '\uFEFF' || r == '\r' {
			h.fail(Pos{line, i + 1}, size, "H001", fmt.Sprintf("%+q in the header, which is text in UTF-8",
				text[i:i+size]),
				"save the file as UTF-8, its lines ended by LF or CRLF")
			return
		}
	}
}

func (h *headerParser) prose(body string, line int) {
	if body != "" && len(h.Doc) == 0 {
		h.DocPos = Pos{line, 4}
	}
	body = strings.TrimPrefix(body, " ")
	if body != "" || len(h.Doc) > 0 {
		h.Doc = append(h.Doc, body)
	}
}

// once reports a tag that may occur only once.
func (h *headerParser) once(tag string, pos Pos) {
	if h.seen[tag] {
		h.fail(pos, 1, "H004", "second @"+tag, "a script has one; join them")
	}
	h.seen[tag] = true
}

// declare records a name of the script's parameters.
func (h *headerParser) declare(name string, pos Pos) {
	if first, ok := h.names[name]; ok {
		h.fail(
			pos,
			len(name),
			"H004",
			fmt.Sprintf("%s is declared twice, first on line %d", name, first.Line),
			"rename one of them",
		)
		return
	}
	h.names[name] = pos
}

// finish checks what only the whole header shows.
func (h *headerParser) finish() {
	top := Pos{1, 1}
	if h.end == 1 || h.end == 2 && h.Source != withoutOrigin(h.Source) {
		h.partial = true // one finding says enough
		h.fail(top, 1, "H006", "the script does not begin with a header",
			"draft one with luagen init -w; the header is the unbroken block of --- lines at the top of the file")
		return
	}
	h.Doc = trimBlank(h.Doc)
	switch {
	case len(h.Doc) == 0:
		h.fail(
			top,
			1,
			"H008",
			"the script has no description",
			"start the file with --- "+h.GoName+" says what happens and what is atomic.",
		)
	case firstWord(h.Doc[0]) != h.GoName:
		h.fail(
			h.DocPos,
			len(firstWord(h.Doc[0])),
			"H008",
			"the description does not start with the Go name",
			"begin with "+h.GoName,
		)
	}
	if h.Contract.Word == "" && !h.ReadOnly {
		h.fail(
			top,
			1,
			"H006",
			"the script declares no contract",
			"add ---@contract all-or-nothing, ---@contract dup-only, or ---@readonly",
		)
	}
	if h.Contract.Word != "" && h.ReadOnly {
		h.fail(
			h.Contract.Pos,
			len(h.Contract.Word),
			"H006",
			"a @readonly script writes nothing and has no contract",
			"remove @contract",
		)
	}
	if h.Retry.Word == "" && h.ReadOnly {
		h.Retry.Word = "safe" // there is nothing that a second run could do once more
	}
	h.checkRows()
	h.checkTemplates()
	h.checkCodes()
	h.checkMerge()
}

func trimBlank(lines []string) []string {
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func firstWord(s string) string {
	if i := strings.IndexAny(s, " ,."); i >= 0 {
		return s[:i]
	}
	return s
}
