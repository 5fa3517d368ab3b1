// Package spelling finds the name that a mistyped one was meant to be.
package spelling

// Nearest returns the candidate with the smallest edit distance to word, or "" when none is close. A close candidate is
// at most two edits away. For a word of up to four letters the limit is one edit: two turn it into almost any other
// short word.
func Nearest(word string, candidates []string) string {
	best, at := "", 3
	if len(word) <= 4 {
		at = 2
	}
	for _, c := range candidates {
		if d := distance(word, c); d < at {
			best, at = c, d
		}
	}
	return best
}

// distance counts the letters to add, to remove and to replace. Two neighbours that have changed places are one edit.
func distance(a, b string) int {
	before, row, next := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next[0] = i + 1
		for j := range len(b) {
			next[j+1] = min(row[j+1], next[j]) + 1
			if a[i] == b[j] {
				next[j+1] = min(next[j+1], row[j])
			} else {
				next[j+1] = min(next[j+1], row[j]+1)
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row, next = row, next, before
	}
	return row[len(b)]
}
