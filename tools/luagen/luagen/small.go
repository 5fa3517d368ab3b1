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
	if v := localVar(e); v != nil {
		if v.Vararg || b.isCut(v) || b.passedSmall(v) {
			return true
		}
		if v.Writes > 0 || v.Init == nil || v.Func != nil || !b.growsByFew(v) {
			return false
		}
		e = v.Init
	}
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

// isCut reports that the script compares the list's length with a number above 1, as it does to work in parts.
func (b *body) isCut(v *luaast.Var) bool {
	cut := false
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		op, ok := n.(*luaast.Binary)
		if !ok || cut {
			return !cut
		}
		for _, pair := range [][2]luaast.Expr{{op.L, op.R}, {op.R, op.L}} {
			length, ok := pair[0].(*luaast.Unary)
			limit, isNumber := pair[1].(*luaast.Number)
			if ok && isNumber && length.Op == "#" && localVar(length.X) == v && limit.Value > 1 &&
				limit.Value <= stackLimit {
				cut = op.Op != "+" && op.Op != "-" && op.Op != "%"
			}
		}
		return true
	})
	return cut
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

// growsByFew reports that each statement that adds to the table runs once, or in a loop with a literal end.
func (b *body) growsByFew(v *luaast.Var) bool {
	for _, n := range b.growth[v] {
		for at := b.parents[n]; at != nil; at = b.parents[at] {
			switch at := at.(type) {
			case *luaast.NumFor:
				if n, ok := integer(at.Limit); (!ok || n > stackLimit) && !b.isSlice(at.Limit) {
					return false
				}
				if b.isSlice(at.Limit) && b.declaredIn(v, b.parents[at]) {
					return true // the list is new for each slice
				}
			case *luaast.While, *luaast.Repeat, *luaast.GenFor, *luaast.Func:
				return false
			}
		}
	}
	return true
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
	few := func(i int) bool {
		if i >= len(args) {
			return false
		}
		n, ok := integer(args[i])
		return ok && n >= 0 && n <= stackLimit
	}
	switch strings.ToUpper(name.Value) {
	case "HMGET", "MGET", "TIME", "ZMSCORE", "SMISMEMBER", "HINCRBY":
		return !b.isMulti(args[len(args)-1])
	case "LRANGE", "ZREVRANGE":
		return few(2) && few(3)
	case "LPOP", "RPOP", "SPOP", "SRANDMEMBER", "ZPOPMIN", "ZPOPMAX", "ZRANDMEMBER", "HRANDFIELD":
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
