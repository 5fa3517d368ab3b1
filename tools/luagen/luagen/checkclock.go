package luagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

var (
	// clockNames are names that a program gives to the time of its own clock; without _ and in lower case.
	clockNames = strings.Fields("now nowms nows nowus nowsec nowsecs nowseconds nowmillis nowmilliseconds nowtime " +
		"timenow currenttime currenttimems currenttimestamp currentms curtime curtimestamp currtime currtimestamp")
	// timeNames may also be those of a time that the caller has from elsewhere, as of an event. One from which the
	// script takes a length of time is that of a clock.
	timeNames = strings.Fields("time timestamp ts timestampms")
	// scoreBounds are the commands with a range of scores, and where its two bounds stand.
	scoreBounds = map[string]int{"ZREMRANGEBYSCORE": 2, "ZRANGEBYSCORE": 2, "ZREVRANGEBYSCORE": 2, "ZCOUNT": 2}
)

// checkClock reports an argument that is the caller's time by its name, where it decides what is old: in a range of
// scores, in a comparison or arithmetic with what is stored, or, moved by some time, as a score. A script that asks
// TIME for anything is left alone.
func (b *body) checkClock() {
	f := b.flow()
	for _, c := range b.commands {
		if slices.Contains(f.commandNames(c.node), "TIME") {
			return
		}
	}
	told := map[*luaast.Var]bool{}
	report := func(e luaast.Expr, use string, name func(string) bool) {
		if v := b.callersTime(e, name); v != nil && !told[v] {
			told[v] = true
			b.at(e, "U002", fmt.Sprintf("%s is the time of the caller's clock, and here %s: the clocks of two callers "+
				"differ", v.Name, use), "ask the server: local time = redis.call('TIME')")
		}
	}
	for _, c := range b.commands {
		names := f.commandNames(c.node)
		if len(names) != 1 {
			continue
		}
		if at, ok := scoreBounds[names[0]]; ok && len(c.args) > at+1 {
			for _, bound := range c.args[at : at+2] {
				name := isClockName
				if isMoved(b.valueOf(bound)) {
					name = isTimeName
				}
				report(bound, "it decides which scores are old", name)
			}
		}
		if names[0] == "ZADD" && len(c.args) == 4 && isMoved(b.valueOf(c.args[2])) {
			report(c.args[2], "it makes the score of a member", isClockName)
		}
	}
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		if e, ok := n.(*luaast.Binary); ok && (isOrder(e.Op) || e.Op == "-") {
			for _, side := range [][2]luaast.Expr{{e.L, e.R}, {e.R, e.L}} {
				if f.isStoredNumber(side[1], 0) {
					report(side[0], "it meets a time that is stored", isClockName)
				}
			}
		}
		return true
	})
}

func isClockName(name string) bool { return slices.Contains(clockNames, plainName(name)) }

func isTimeName(name string) bool {
	return isClockName(name) || slices.Contains(timeNames, plainName(name))
}

func plainName(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// valueOf is what a local that keeps its value was made of.
func (b *body) valueOf(e luaast.Expr) luaast.Expr {
	if v := localVar(e); v != nil && v.Writes == 0 && v.Func == nil && v.Init != nil {
		return v.Init
	}
	return e
}

// isMoved reports arithmetic.
func isMoved(e luaast.Expr) bool {
	op, ok := e.(*luaast.Binary)
	return ok && (op.Op == "+" || op.Op == "-")
}

// callersTime is the local in an expression that holds an argument and has one of the names, through tonumber and
// arithmetic.
func (b *body) callersTime(e luaast.Expr, named func(string) bool) *luaast.Var {
	return b.callersTimeIn(e, named, 0)
}

func (b *body) callersTimeIn(e luaast.Expr, named func(string) bool, depth int) *luaast.Var {
	if depth > 8 {
		return nil
	}
	depth++
	switch e := e.(type) {
	case *luaast.Paren:
		return b.callersTimeIn(e.X, named, depth)
	case *luaast.Call:
		if keepsUnit[builtin(e)] && len(e.Args) == 1 {
			return b.callersTimeIn(e.Args[0], named, depth)
		}
	case *luaast.Binary:
		if v := b.callersTimeIn(e.L, named, depth); v != nil {
			return v
		}
		return b.callersTimeIn(e.R, named, depth)
	case *luaast.Name:
		v := e.Var
		if v == nil || v.Writes > 0 || v.Func != nil || v.Init == nil {
			return nil
		}
		if named(v.Name) && isArgument(v.Init) {
			return v
		}
		return b.callersTimeIn(v.Init, named, depth)
	}
	return nil
}

// isArgument reports ARGV[n] and tonumber(ARGV[n]).
func isArgument(e luaast.Expr) bool {
	if c, ok := e.(*luaast.Call); ok && builtin(c) == "tonumber" && len(c.Args) > 0 {
		e = c.Args[0]
	}
	if or, ok := e.(*luaast.Binary); ok && or.Op == "or" {
		e = or.L
	}
	at, ok := entry(e)
	return ok && !at.key
}

// isStoredNumber reports a number that comes from a reply of a command that reads a value.
func (f flow) isStoredNumber(e luaast.Expr, depth int) bool {
	if depth > 8 {
		return false
	}
	depth++
	switch e := e.(type) {
	case *luaast.Paren:
		return f.isStoredNumber(e.X, depth)
	case *luaast.Binary:
		arithmetic := e.Op == "+" || e.Op == "-" || e.Op == "or" || e.Op == "and"
		return arithmetic && (f.isStoredNumber(e.L, depth) || f.isStoredNumber(e.R, depth))
	case *luaast.Index:
		return f.isStoredNumber(e.Obj, depth)
	case *luaast.Call:
		if keepsUnit[builtin(e)] {
			return slices.ContainsFunc(e.Args, func(arg luaast.Expr) bool { return f.isStoredNumber(arg, depth) })
		}
		names := f.commandNames(e)
		return len(names) == 1 && slices.Contains(valueReads, names[0])
	case *luaast.Name:
		if v := e.Var; v != nil && v.Func == nil {
			return slices.ContainsFunc(f.sourcesOf(v), func(value luaast.Expr) bool {
				return value != nil && f.isStoredNumber(value, depth)
			})
		}
	}
	return false
}

// valueReads are the commands whose reply can be a time that a script has stored.
var valueReads = strings.Fields("GET HGET HMGET ZSCORE ZRANGE ZREVRANGE LINDEX GETSET")
