package luagen

import (
	"slices"
	"strings"
)

// Level says what a finding does to a run.
type Level uint8

// An Error is a script that cannot do what it says: nothing is written. A Warning is printed, and blocks under
// Config.Strict alone.
const (
	Error Level = iota
	Warning
)

func (l Level) String() string {
	if l == Warning {
		return "warning"
	}
	return "error"
}

// warnings are the rules for what works, and is likely to hurt. All others are errors.
var warnings = []string{
	"B001", "B002", "B003", "C003", "E001", "E002", "E003", "H008", "H011", "J001", "K001", "K004", "K005", "K009",
	"N001", "N002", "N003", "P001", "P002",
	"R002", "R004", "R005", "R008", "U002", "W001", "W002", "W003", "W004",
}

// Level is that of the finding's rule.
func (d Diagnostic) Level() Level {
	if slices.Contains(warnings, d.Rule) {
		return Warning
	}
	return Error
}

// HasErrors reports whether a finding is more than a warning.
func (ds Diagnostics) HasErrors() bool {
	return slices.ContainsFunc(ds, func(d Diagnostic) bool { return d.Level() == Error })
}

// allowable reports whether @allow can switch a rule off. It cannot switch off the rules of the syntax, the header and
// the fragments, nor the rule of @merge, which defines the form of a call.
func allowable(rule string) bool {
	return len(rule) == 4 && !strings.Contains("SHF", rule[:1]) && rule != "M001" &&
		strings.Trim(rule[1:], "0123456789") == "" &&
		rule[0] >= 'A' && rule[0] <= 'Z'
}
