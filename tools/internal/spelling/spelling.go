// Package spelling finds the name that a mistyped one was meant to be.
package spelling

// Nearest returns the candidate with the smallest edit distance to word, or "" when none is close.
func Nearest(word string, candidates []string) string {
	best, at := "", 3
	for _, c := range candidates {
		if d := distance(word, c); d < at {
			best, at = c, d
		}
	}
	return best
}

func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, diag+1, row[j]+1)
		}
	}
	return row[len(b)]
}
