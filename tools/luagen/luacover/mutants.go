package luacover

import "github.com/luatomic/luatomic/tools/luagen/luaast"

// Mutant is a script with one condition that is always, or never, true.
type Mutant struct {
	Line  int    // of the condition
	If    int    // the first line of the whole if, which a test runs to get to the condition of an elseif
	Cond  string // the condition
	Holds bool   // what the condition became
	Text  string
}

// Mutants lists the mutants of a script, in the order of the source. Lines stay.
func Mutants(source string) []Mutant {
	chunk, err := luaast.Parse(source)
	if err != nil {
		return nil
	}
	var all []Mutant
	luaast.Inspect(chunk.Body, func(n, _ luaast.Node) bool {
		s, ok := n.(*luaast.If)
		if !ok {
			return true
		}
		for _, c := range s.Clauses {
			if c.Cond == nil {
				continue
			}
			e := c.Cond.Extent()
			for _, word := range []string{"false", "true"} {
				// The condition is still there, so that it can be searched for; it counts no more.
				op := map[string]string{"false": ") and false", "true": ") or true"}[word]
				text := source[:e.Start.Off] + "(" + source[e.Start.Off:e.End] + op + source[e.End:]
				all = append(all, Mutant{e.Start.Line, s.Extent().Start.Line, source[e.Start.Off:e.End],
					word == "true", text})
			}
		}
		return true
	})
	return all
}
