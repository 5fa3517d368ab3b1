package luagen

import "strings"

// What a draft says where the body says nothing: its author decides.
const (
	guessProse    = "does what its comments say."
	guessContract = "check: what does an error half-way leave behind?"
	guessRetry    = "check: may it run twice?"
	guessReply    = "check: the returns differ"
	guessError    = "check: when?"
	guessFloat    = "check: or float?"
)

var guesses = []string{guessContract, guessRetry, guessReply, guessError, guessFloat}

// checkGuess reports what a draft has left open in a line of the header: it would stand in the documentation.
func (h *headerParser) checkGuess(text string, line int) {
	for _, guess := range guesses {
		if i := strings.Index(text, guess); i >= 0 {
			h.fail(Pos{line, i + 1}, len(guess), "H011", "the header still has a guess of init (\""+guess+"\")",
				"decide, and remove the words \""+guess+"\"")
		}
	}
	if name, ok := strings.CutSuffix(strings.TrimPrefix(text, "--- "), " "+guessProse); ok && isExported(name) {
		h.fail(Pos{line, len(text) - len(guessProse) + 1}, len(guessProse), "H011",
			"the description is still that of init",
			"say what happens and what is atomic")
	}
}
