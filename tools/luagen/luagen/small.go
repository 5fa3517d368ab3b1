package luagen

import (
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// stackLimit is the most values that one unpack can give.
const stackLimit = 7999

// isSmall reports a list that can be shown to have at most stackLimit elements: a constructor to which single elements
// are added, a reply that the command itself bounds, the extra arguments of a function, or a list whose length the
// script compares with a number.
func (b *body) isSmall(e luaast.Expr) bool {
	v := localVar(e)
	if v == nil {
		return b.isSmallValue(e)
	}
	small, known := b.small[v]
	if !known {
		b.small[v] = false // for a list that grows by its own elements
		small = v.Vararg || b.cut[v] || b.passedSmall(v) ||
			v.Writes == 0 && v.Init != nil && v.Func == nil && b.growsByFew(v) && b.isSmall(v.Init)
		b.small[v] = small
	}
	return small
}

func (b *body) isSmallValue(e luaast.Expr) bool {
	switch e := e.(type) {
	case *luaast.Table:
		var last luaast.Expr
		for _, item := range e.Items {
			last = item.Value
		}
		return last == nil || !b.isMulti(last) || b.isSmallUnpack(last)
	case *luaast.Call:
		if fn := b.localFunc(e); fn != nil {
			return false
		}
		return b.redisName(e.Fn) == "call" && b.isSmallReply(e.Args)
	}
	return false
}

// indexComparison notes what the script compares with a number of 2 to stackLimit, a local or its length, as it does to
// work in parts; and each comparison that may be a limit, other than that of a loop.
func (b *body) indexComparison(n *luaast.Binary) {
	if !isOrder(n.Op) && n.Op != "==" && n.Op != "~=" {
		return
	}
	for _, pair := range [][2]luaast.Expr{{n.L, n.R}, {n.R, n.L}} {
		limit, isNumber := pair[1].(*luaast.Number)
		if length, ok := pair[0].(*luaast.Unary); ok && length.Op == "#" {
			pair[0] = length.X
		}
		if v := localVar(pair[0]); v != nil && isNumber && limit.Value > 1 && limit.Value <= stackLimit {
			b.cut[v] = true
		}
	}
	switch b.parents[n].(type) {
	case *luaast.While, *luaast.Repeat:
	default:
		if isOrder(n.Op) {
			b.limits = append(b.limits, n)
		}
	}
}

// passedSmall reports a parameter for which each call passes a list that is small.
func (b *body) passedSmall(v *luaast.Var) bool {
	fn := b.funcVar[v.Func]
	if v.Func == nil || fn == nil || fn.Writes > 0 || b.escaped[fn] || len(b.callers[fn]) == 0 {
		return false
	}
	for _, call := range b.callers[fn] {
		if v.Index >= len(call.Args) {
			return false
		}
		arg := localVar(call.Args[v.Index])
		if arg == nil || arg.Func != nil || !b.isSmall(call.Args[v.Index]) {
			return false // one step: not through a second function
		}
	}
	return true
}

func (b *body) isSmallUnpack(e luaast.Expr) bool {
	c, ok := e.(*luaast.Call)
	return ok && builtin(c) == "unpack" && len(c.Args) == 1 && localVar(c.Args[0]) != nil && b.isSmall(c.Args[0])
}

// growsByFew reports that each statement that adds to the table runs once, or in a loop with few turns. In two loops
// over small lists, one in the other, it has as many turns as the product.
func (b *body) growsByFew(v *luaast.Var) bool {
	for _, n := range b.growth[v] {
		visits := 0
		for at := b.parents[n]; at != nil; at = b.parents[at] {
			switch at := at.(type) {
			case *luaast.NumFor:
				if b.isSlice(at.Limit) && b.declaredIn(v, b.parents[at]) {
					return true // the list is new for each slice
				}
				if b.isLengthOfSmall(at.Limit) {
					visits++
				} else if !b.isCapped(at.Limit) && !b.isSlice(at.Limit) {
					return false
				}
			case *luaast.GenFor:
				visits++
				if !b.visitsSmall(at) {
					return false
				}
			case *luaast.While, *luaast.Repeat, *luaast.Func:
				return false
			}
		}
		if visits > 1 {
			return false
		}
	}
	return true
}

// isLengthOfSmall reports #list of a list that is small.
func (b *body) isLengthOfSmall(e luaast.Expr) bool {
	length, ok := e.(*luaast.Unary)
	return ok && length.Op == "#" && b.isSmall(length.X)
}

// visitsSmall reports a loop over ipairs or pairs of a list that is small.
func (b *body) visitsSmall(loop *luaast.GenFor) bool {
	c, ok := loop.Exprs[0].(*luaast.Call)
	return ok && len(c.Args) == 1 && (builtin(c) == "ipairs" || builtin(c) == "pairs") && b.isSmall(c.Args[0])
}

// isFew reports a number of 0 to stackLimit: a literal, or a local that only ever is one.
func (b *body) isFew(e luaast.Expr) bool {
	if v := localVar(e); v != nil && v.Writes == 0 && v.Init != nil {
		e = v.Init
	}
	n, ok := integer(e)
	return ok && n >= 0 && n <= stackLimit
}

// isCapped reports a number that is at most stackLimit. It may be below 0: as an index, or in LIMIT, that is no end.
func (b *body) isCapped(e luaast.Expr) bool {
	if v := localVar(e); v != nil && v.Writes == 0 && builtin(v.Init) == "math.min" {
		e = v.Init
	}
	if builtin(e) == "math.min" {
		return slices.ContainsFunc(e.(*luaast.Call).Args, b.isFew)
	}
	return b.isFew(e) || b.cut[localVar(e)]
}

// isSlice reports math.min(i + 99, #list), the end of a part of a list.
func (b *body) isSlice(e luaast.Expr) bool {
	c, ok := e.(*luaast.Call)
	if !ok || builtin(c) != "math.min" || len(c.Args) != 2 {
		return false
	}
	for _, arg := range c.Args {
		if sum, ok := arg.(*luaast.Binary); ok && (sum.Op == "+" || sum.Op == "-") {
			return true
		}
	}
	return false
}

// declaredIn reports whether the local is declared among the statements of n.
func (b *body) declaredIn(v *luaast.Var, n luaast.Node) bool {
	var body []luaast.Stmt
	switch n := n.(type) {
	case *luaast.NumFor:
		body = n.Body
	case *luaast.GenFor:
		body = n.Body
	case *luaast.While:
		body = n.Body
	}
	for _, s := range body {
		if local, ok := s.(*luaast.Local); ok && slices.Contains(local.Vars, v) {
			return true
		}
	}
	return false
}

// isSmallReply reads the bound out of a command's arguments: LIMIT 0 100, COUNT 10, LRANGE key 0 99, SPOP key 5.
func (b *body) isSmallReply(args []luaast.Expr) bool {
	if len(args) == 0 {
		return false
	}
	name, ok := args[0].(*luaast.Str)
	if !ok {
		return false
	}
	few := func(i int) bool { return i < len(args) && b.isFew(args[i]) }
	switch strings.ToUpper(name.Value) {
	case "HMGET", "MGET", "TIME", "ZMSCORE", "SMISMEMBER", "HINCRBY":
		last := args[len(args)-1]
		return !b.isMulti(last) || b.isSmallUnpack(last)
	case "LRANGE", "ZREVRANGE":
		return few(2) && few(3)
	case "LPOP", "RPOP", "SPOP", "ZPOPMIN", "ZPOPMAX":
		return len(args) == 2 || b.isCapped(args[2])
	case "SRANDMEMBER", "ZRANDMEMBER", "HRANDFIELD": // -9000 is as many as 9000
		return len(args) == 2 || few(2)
	case "ZRANGE":
		if !b.hasWord(args, "BYSCORE") && !b.hasWord(args, "BYLEX") {
			return few(2) && few(3)
		}
	}
	for i, arg := range args {
		if s, ok := arg.(*luaast.Str); ok {
			switch strings.ToUpper(s.Value) {
			case "LIMIT":
				return few(i + 2)
			case "COUNT":
				return few(i + 1)
			}
		}
	}
	return false
}

func (b *body) hasWord(args []luaast.Expr, words ...string) bool {
	for _, arg := range args {
		if s, ok := arg.(*luaast.Str); ok && slices.Contains(words, strings.ToUpper(s.Value)) {
			return true
		}
	}
	return false
}
