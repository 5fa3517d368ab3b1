package luagen

import (
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// The commands whose number says what it is, by the place of that number in their arguments, the name first.
var (
	floatPlaces = map[string]int{"INCRBYFLOAT": 2, "HINCRBYFLOAT": 3}
	wholePlaces = map[string]int{"INCRBY": 2, "DECRBY": 2, "HINCRBY": 3}
	wholeWords  = []string{"COUNT", "LIMIT"}
)

// numberTypes are the types of the entries of ARGV that a script calculates with or gives to a command that takes a
// number. What only tonumber shows is a guess.
func (d *drafter) numberTypes(numeric map[int]bool) map[int]string {
	types := map[int]string{}
	for i := range numeric {
		if numeric[i] {
			types[i] = "int  " + guessFloat
		}
	}
	d.eachNumber(func(e luaast.Expr, typ string) {
		n, ok := d.argumentOf(e)
		if ok && (typ == "float" || numeric[n] && types[n] != "float") {
			types[n] = typ
		}
	})
	d.markOptional(types)
	return types
}

// markOptional makes the type of an entry optional that has a default where it is no number, as an absent one is not.
func (d *drafter) markOptional(types map[int]string) {
	luaast.Inspect(d.Body.Body, func(n, _ luaast.Node) bool {
		either, ok := n.(*luaast.Binary)
		if !ok || either.Op != "or" || builtin(either.L) != "tonumber" {
			return true
		}
		i, _ := d.argumentOf(either.L)
		if typ, guess, _ := strings.Cut(types[i], "  "); typ != "" && !strings.HasSuffix(typ, "?") {
			types[i] = strings.TrimSpace(typ + "?  " + guess)
		}
		return true
	})
}

// eachNumber yields the expressions whose places say what number they are.
func (d *drafter) eachNumber(yield func(e luaast.Expr, typ string)) {
	f := d.flow()
	at := func(args []luaast.Expr, place int, typ string) {
		if place > 0 && place < len(args) {
			yield(args[place], typ)
		}
	}
	for _, c := range d.commands {
		names := f.commandNames(c.node)
		if len(names) != 1 {
			continue
		}
		at(c.args, floatPlaces[names[0]], "float")
		at(c.args, wholePlaces[names[0]], "int")
		if _, timed := unitPlaces[names[0]]; timed {
			at(c.args, 2, "int")
		}
		for i, arg := range c.args {
			if word, ok := arg.(*luaast.Str); ok && isWholeWord(word.Value) {
				at(c.args, i+1, "int")
			}
		}
	}
	for _, loop := range d.loopVars {
		yield(loop.Limit, "int")
	}
}

// isWholeWord reports whether the argument of a command that follows the word, such as EX or COUNT, is a whole number.
func isWholeWord(word string) bool {
	_, timed := unitWords[strings.ToUpper(word)]
	return timed || slices.Contains(wholeWords, strings.ToUpper(word))
}

// argumentOf is the place of the entry of ARGV that an expression is: itself, as a number, or by a local.
func (d *drafter) argumentOf(e luaast.Expr) (int, bool) {
	if v := localVar(e); v != nil && v.Writes == 0 {
		have, ok := d.bound[v]
		return have.index, ok && !have.key
	}
	switch x := e.(type) {
	case *luaast.Paren:
		return d.argumentOf(x.X)
	case *luaast.Binary:
		if x.Op == "or" {
			return d.argumentOf(x.L)
		}
	case *luaast.Call:
		if builtin(x) == "tonumber" && len(x.Args) > 0 {
			return d.argumentOf(x.Args[0])
		}
	}
	have, ok := entry(e)
	return have.index, ok && !have.key
}
