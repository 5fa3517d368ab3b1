package luagen

import (
	"cmp"
	"fmt"
	"strings"
)

const docWidth = 100

// doc prints text as a comment, wrapped.
func (e *emitter) doc(text string) {
	for _, line := range wrap(text, docWidth-len("// ")) {
		e.printf("// %s\n", line)
	}
}

// bullet prints one item of a list in a comment, in the form gofmt keeps.
func (e *emitter) bullet(text string) { e.item("-", text) }

// item prints one item of a list, behind its mark.
func (e *emitter) item(mark, text string) {
	lead := fmt.Sprintf("//%4s ", mark)
	for _, line := range wrap(text, docWidth-len("//   - ")) {
		e.printf("%s%s\n", lead, line)
		lead = "//     "
	}
}

func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// sentence ends text with a full stop.
func sentence(text string) string {
	if text == "" || strings.ContainsRune(".!?", rune(text[len(text)-1])) {
		return text
	}
	return text + "."
}

// prose prints the description: paragraphs and the items of lists are wrapped anew, indented lines stay as written.
func (e *emitter) prose() {
	for _, b := range proseParts(e.Doc) {
		switch b.kind {
		case paragraph:
			e.doc(b.text)
		case item:
			e.item(b.mark, b.text)
		case verbatim:
			e.printf("// %s\n", b.text)
		case gap:
			e.printf("//\n")
		}
	}
}

// contractText says what each contract means, where the header does not say it for its script.
var contractText = map[string]string{
	"all-or-nothing": "an error leaves the data as it was",
	"dup-only":       "an error half-way can repeat an item, never lose one",
}

// facts prints what a caller has to know beyond the description, as a list.
func (e *emitter) facts() {
	e.printf("//\n")
	if e.ReadOnly {
		e.bullet("Contract: reads only; may run on a replica.")
	} else {
		e.bullet("Contract, " + e.Contract.Word + ": " +
			sentence(cmp.Or(e.Contract.Prose, contractText[e.Contract.Word])))
	}
	if e.repeats() {
		e.bullet("Retry: " + withProse("safe; sent again after a lost reply", e.Retry.Prose))
	} else {
		e.bullet("Retry: " + withProse("never after a lost reply; then the error is lua.ErrOutcomeUnknown",
			e.Retry.Prose))
	}
	if e.Guard != "" {
		e.bullet("Guard: on a client of lua.Guard it runs only while the lease is held; else the error is " +
			"lua.ErrFenced.")
	}
	if e.Merge > 0 {
		e.bullet(fmt.Sprintf("Merge: one call of the script takes the rows of up to %d callers; KEYS and ARGV below "+
			"are those of the first row.", e.Merge))
	}
	if e.Slots.Word == "any" {
		e.bullet("Slots: " + withProse("any; a Redis Cluster refuses keys in different slots", e.Slots.Prose))
	}
	for i, k := range e.Keys {
		e.bullet(fmt.Sprintf("KEYS[%d]: %s", i+1, sentence(keyFact(k))))
	}
	if e.Reply != nil && e.ReplyProse != "" {
		e.bullet("Reply: " + sentence(e.ReplyProse))
	}
	if e.Cost != "" {
		e.bullet("Cost: " + sentence(e.Cost))
	}
	for _, c := range e.Errors {
		e.bullet(fmt.Sprintf("[%s]: %s", e.errorVar(c), sentence(c.Text)))
	}
}

func keyFact(k Key) string {
	fact := k.Name
	if k.Variadic {
		fact += " and on"
	}
	if k.Type != "" {
		fact += ", " + k.Type
	}
	if len(k.Fields) > 0 {
		parts := make([]string, len(k.Fields))
		for i, f := range k.Fields {
			if parts[i] = strings.TrimSpace(f.Name + " " + f.Type); f.Template != "" {
				parts[i] += fmt.Sprintf(" %q", f.Template)
			}
		}
		fact += ", each of (" + strings.Join(parts, ", ") + ")"
	}
	if k.Template != "" {
		fact += fmt.Sprintf(", %q", k.Template)
	}
	if k.Prose != "" {
		fact += ": " + k.Prose
	}
	return fact
}

func withProse(fact, prose string) string {
	if prose == "" {
		return sentence(fact)
	}
	return fact + "; " + sentence(prose)
}
