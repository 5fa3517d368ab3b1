package scriptcase

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
)

// Bound is what a header says of one argument, of groups of arguments, or of keys.
type Bound struct {
	Tag, Name, Kind string // Tag is arg, args, key, keys or merge
	At, Width       int    // its place from 0; the values of a group
	Min, Max        string // empty for none
}

var (
	continued = regexp.MustCompile(`\n---  +`) // of a tag, on the next line
	boundLine = regexp.MustCompile(`(?m)^---@(args?|keys?) +(\w+) +(.*)$`)
	mergeLine = regexp.MustCompile(`(?m)^---@merge +max=(\d+) *$`)
	minOption = regexp.MustCompile(`^min=(\S+)$`)
	maxOption = regexp.MustCompile(`^max=(\S+)$`)
)

// HeaderOf reads the bounds that a header declares.
func HeaderOf(script *lua.Script) (out []Bound) {
	places := make(map[string]int)
	for _, found := range boundLine.FindAllStringSubmatch(continued.ReplaceAllString(*script.Source, "  "), -1) {
		b := Bound{Tag: found[1], Name: found[2], At: places[found[1][:3]], Width: 1}
		places[found[1][:3]]++
		kind, options := found[3], ""
		if strings.HasPrefix(kind, "(") {
			kind, options, _ = strings.Cut(kind[1:], ")  ")
			b.Width = len(strings.Split(enumMembers.ReplaceAllString(kind, ""), ","))
		} else {
			kind, options, _ = strings.Cut(kind, " ")
		}
		b.Kind = kind
		for _, word := range strings.Fields(options) {
			if m := minOption.FindStringSubmatch(word); m != nil {
				b.Min = m[1]
			} else if m := maxOption.FindStringSubmatch(word); m != nil {
				b.Max = m[1]
			} else if !strings.Contains(word, "=") {
				break // prose
			}
		}
		out = append(out, b)
	}
	if found := mergeLine.FindStringSubmatch(*script.Source); found != nil {
		out = append(out, Bound{Tag: "merge", Name: "row", Max: found[1]})
	}
	return out
}

// enumMembers are the commas of a field that are none between fields.
var enumMembers = regexp.MustCompile(`enum\([^)]*\)?`)

// Many says whether it is of any number of keys, or of groups of arguments.
func (b Bound) Many() bool { return b.Tag == "keys" || b.Tag == "args" }

// Below is a number too small by one.
func (b Bound) Below() string { return fmt.Sprint(lab.Must(strconv.Atoi(b.Min)) - 1) }

// Most is the greatest number that is allowed.
func (b Bound) Most() int { return lab.Must(strconv.Atoi(b.Max)) }

// Groups is list with n groups in the place of those that it has; they are alike, or each
// of its own.
func (b Bound) Groups(list []string, n int, differ bool) []string {
	out := slices.Clone(list[:b.At])
	for i := range n {
		for _, v := range list[len(list)-b.Width:] {
			if differ {
				v += fmt.Sprint(".", i)
			}
			out = append(out, v)
		}
	}
	return out
}
