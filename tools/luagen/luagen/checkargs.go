package luagen

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// checkArguments reports arguments that redis.call or the command refuses whatever is stored.
func (b *body) checkArguments() {
	f := b.flow()
	for _, c := range b.commands {
		for _, arg := range c.args {
			if what := b.noArgument(arg); what != "" {
				b.at(arg, "C007", what+" as an argument: redis.call takes text and numbers",
					"pass a value of it: '1' or '0', an element, or unpack(list)")
			}
		}
		if names := f.commandNames(c.node); len(names) == 1 {
			f.checkOptions(c, names[0])
			f.checkScores(c, names[0])
		}
	}
}

// noArgument says what an expression is that no command takes; "" for all others.
func (b *body) noArgument(e luaast.Expr) string {
	if v := localVar(e); v != nil && v.Writes == 0 && v.Func == nil {
		if _, ok := v.Init.(*luaast.Table); ok {
			e = v.Init
		}
	}
	switch e := e.(type) {
	case *luaast.Table:
		return "a table"
	case *luaast.Const:
		return e.Word
	case *luaast.Func:
		return "a function"
	case *luaast.Unary:
		if e.Op == "not" {
			return "a truth value"
		}
	case *luaast.Binary:
		switch e.Op {
		case "==", "~=", "<", ">", "<=", ">=":
			return "a truth value"
		}
	}
	return ""
}

// timeWords are the options of a time, by command.
var timeWords = map[string]bool{"SET": true, "GETEX": true, "HSETEX": true, "HGETEX": true}

// checkOptions reports EX, PX, EXAT and PXAT without a number behind them.
func (f flow) checkOptions(c redisCall, name string) {
	if !timeWords[name] || len(c.args) < 3 {
		return
	}
	first := 2
	if name == "SET" {
		first = 3
	}
	for i := first; i < len(c.args); i++ {
		word, ok := c.args[i].(*luaast.Str)
		if !ok || name != "SET" && i > 2 {
			continue // behind FIELDS stand data
		}
		if _, takesTime := unitWords[strings.ToUpper(word.Value)]; !takesTime {
			continue
		}
		switch {
		case i == len(c.args)-1:
			f.at(word, "C007", fmt.Sprintf("%s %s without a time", name, word.Value), "the time stands behind it")
		case !f.canBeNumber(c.args[i+1], 1):
			f.at(c.args[i+1], "C007", fmt.Sprintf("%s %s with something that is no time above 0", name, word.Value),
				"the time stands behind it")
		}
		i++
	}
}

// checkScores reports a score of ZADD that is no number, as when score and member change places.
func (f flow) checkScores(c redisCall, name string) {
	if name != "ZADD" || len(c.args) < 4 || f.isMulti(c.args[len(c.args)-1]) {
		return
	}
	at := 2
	for at < len(c.args) {
		word, ok := c.args[at].(*luaast.Str)
		if !ok || !strings.Contains(" NX XX GT LT CH INCR ", " "+strings.ToUpper(word.Value)+" ") {
			break
		}
		at++
	}
	if (len(c.args)-at)%2 != 0 {
		if f.allTold(c.args[2:]) {
			f.at(c.node, "C007", "ZADD with a member that has no score", "ZADD key score member, and so on in pairs")
		}
		return
	}
	for ; at < len(c.args); at += 2 {
		if word, ok := c.args[at].(*luaast.Str); ok && !f.canBeNumber(word, -1e308) {
			f.at(word, "C007", "a score of ZADD that is no number", "the score stands before the member")
		}
	}
}

// allTold reports that none of the arguments can be an option that is kept in a variable.
func (f flow) allTold(args []luaast.Expr) bool {
	for _, arg := range args {
		if _, ok := arg.(*luaast.Name); ok {
			if texts, known := f.words(arg); !known || len(texts) > 0 {
				return false
			}
		}
	}
	return true
}

// canBeNumber judges literals alone.
func (f flow) canBeNumber(e luaast.Expr, least float64) bool {
	switch e := e.(type) {
	case *luaast.Number:
		return e.Value >= least
	case *luaast.Str:
		switch strings.ToLower(strings.TrimLeft(e.Value, "+-")) {
		case "inf", "infinity":
			return true
		}
		n, err := strconv.ParseFloat(e.Value, 64)
		return err == nil && n >= least
	}
	return true
}
