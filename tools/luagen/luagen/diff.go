package luagen

import (
	"fmt"
	"os"
	"strings"
)

// Diff renders the change to one file as a unified diff against the disk.
func Diff(f File) string {
	have, err := os.ReadFile(f.Path)
	from, to := f.Path, f.Path
	if err != nil {
		from = "/dev/null"
	}
	if f.Text == nil {
		to = "/dev/null"
	}
	edits := diffLines(splitLines(string(have)), splitLines(string(f.Text)))
	return fmt.Sprintf("--- %s\n+++ %s\n%s", visible(from), visible(to), hunks(edits))
}

func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// edit is one line of the diff: ' ' kept, '-' removed, '+' added.
type edit struct {
	op   byte
	text string
}

// diffLines finds a longest common subsequence, after the equal head and tail are set aside.
func diffLines(a, b []string) []edit {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var out []edit
	for _, line := range a[:head] {
		out = append(out, edit{' ', line})
	}
	out = append(out, diffMiddle(a[head:len(a)-tail], b[head:len(b)-tail])...)
	for _, line := range a[len(a)-tail:] {
		out = append(out, edit{' ', line})
	}
	return out
}

func diffMiddle(a, b []string) []edit {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []edit
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, edit{' ', a[i]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out = append(out, edit{'-', a[i]})
			i++
		default:
			out = append(out, edit{'+', b[j]})
			j++
		}
	}
	return out
}

const diffContext = 3

// hunks groups the edits, with a few kept lines around each change.
func hunks(edits []edit) string {
	var b strings.Builder
	oldLine, newLine := 1, 1
	for start := 0; start < len(edits); {
		if edits[start].op == ' ' {
			start++
			oldLine, newLine = oldLine+1, newLine+1
			continue
		}
		lead := min(diffContext, start)
		for k := 1; k <= lead; k++ {
			if edits[start-k].op != ' ' {
				lead = k - 1
			}
		}
		end := hunkEnd(edits, start)
		oldLen, newLen := writeHunk(&b, edits[start-lead:end], oldLine-lead, newLine-lead)
		oldLine, newLine = oldLine-lead+oldLen, newLine-lead+newLen
		start = end
	}
	return b.String()
}

// hunkEnd runs on until more kept lines follow than two hunks would share.
func hunkEnd(edits []edit, start int) int {
	end, kept := start, 0
	for end < len(edits) && kept <= 2*diffContext {
		if edits[end].op == ' ' {
			kept++
		} else {
			kept = 0
		}
		end++
	}
	return end - max(0, kept-diffContext)
}

func writeHunk(b *strings.Builder, edits []edit, oldLine, newLine int) (oldLen, newLen int) {
	for _, e := range edits {
		if e.op != '+' {
			oldLen++
		}
		if e.op != '-' {
			newLen++
		}
	}
	if oldLen == 0 {
		oldLine--
	}
	if newLen == 0 {
		newLine--
	}
	fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", oldLine, oldLen, newLine, newLen)
	for _, e := range edits {
		fmt.Fprintf(b, "%c%s\n", e.op, e.text)
	}
	return oldLen, newLen
}
