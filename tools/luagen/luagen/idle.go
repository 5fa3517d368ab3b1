package luagen

import (
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// zeroIsIdle are writes that changed nothing when their reply is 0, falseIsIdle when it is false.
var (
	zeroIsIdle = map[string]bool{
		"DEL": true, "UNLINK": true, "HDEL": true, "LREM": true, "SREM": true, "ZREM": true, "XDEL": true, "XACK": true,
		"SADD":  true,
		"SETNX": true, "HSETNX": true, "MSETNX": true, "EXPIRE": true, "PEXPIRE": true, "EXPIREAT": true,
		"PEXPIREAT": true,
		"PERSIST":   true, "RENAMENX": true, "COPY": true, "MOVE": true, "SMOVE": true, "LPUSHX": true, "RPUSHX": true,
		"LINSERT":          true,
		"ZREMRANGEBYSCORE": true, "ZREMRANGEBYRANK": true, "ZREMRANGEBYLEX": true,
	}
	falseIsIdle = map[string]bool{
		"LPOP": true, "RPOP": true, "SPOP": true, "RPOPLPUSH": true, "LMOVE": true, "GETDEL": true, "SET": true,
		"GETEX": true,
	}
)

// idle lists the writes that changed nothing when the condition is as given.
func (f flow) idle(cond luaast.Expr, holds bool) []*luaast.Call {
	switch e := cond.(type) {
	case *luaast.Paren:
		return f.idle(e.X, holds)
	case *luaast.Unary:
		if e.Op == "not" {
			return f.idle(e.X, !holds)
		}
	case *luaast.Binary:
		switch {
		case e.Op == "and" && holds, e.Op == "or" && !holds:
			return append(f.idle(e.L, holds), f.idle(e.R, holds)...)
		case e.Op == "and" || e.Op == "or":
			return nil
		}
		return f.idleCompared(e, holds)
	case *luaast.Index:
		if holds {
			return f.failed(e)
		}
	case *luaast.Name, *luaast.Call:
		if !holds {
			return f.idleCall(e, falseIsIdle)
		}
	}
	return nil
}

// idleCompared reads reply == 0, reply ~= 1, reply < 1, reply > 0, reply == false and their opposites.
func (f flow) idleCompared(e *luaast.Binary, holds bool) []*luaast.Call {
	side, other, op := e.L, e.R, e.Op
	if _, ok := side.(*luaast.Number); ok {
		side, other = other, side
		op = strings.NewReplacer("<", ">", ">", "<").Replace(op)
	}
	if c, ok := other.(*luaast.Const); ok && c.Word != "true" {
		if (op == "==") == holds {
			return f.idleCall(side, falseIsIdle)
		}
		return f.failed(side)
	}
	n, ok := other.(*luaast.Number)
	if !ok {
		return nil
	}
	if !holds {
		op = opposite[op]
	}
	switch {
	case n.Value == 0 && (op == "==" || op == "<="), n.Value == 1 && op == "<":
		return f.idleCall(side, zeroIsIdle)
	case n.Value == 1 && op == "~=":
		return slices.DeleteFunc(f.idleCall(side, zeroIsIdle), func(c *luaast.Call) bool { return !f.isYesNo(c) })
	}
	return nil
}

var opposite = map[string]string{"==": "~=", "~=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}

// idleCall is the call whose reply e is, if its command is one of the table.
func (f flow) idleCall(e luaast.Expr, table map[string]bool) []*luaast.Call {
	switch v := localVar(e); {
	case v == nil || v.Func != nil:
	case v.Writes > 0:
		e = f.justAssigned(e, v)
	case v.Init != nil:
		e = v.Init
	}
	if c, ok := e.(*luaast.Call); ok && builtin(c) == "tonumber" && len(c.Args) == 1 {
		e = c.Args[0]
	}
	c, ok := e.(*luaast.Call)
	if !ok {
		return nil
	}
	names := f.commandNames(c)
	for _, name := range names {
		if builtin(c) == "pcall" {
			break // false: the command has failed
		}
		if !table[name] || name == "SET" && f.hasWord(c.Args, "GET") {
			return nil // false is what was there before
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []*luaast.Call{c}
}

// failed is the redis.pcall whose error e is: a command that fails changes nothing.
func (f flow) failed(e luaast.Expr) []*luaast.Call {
	i, ok := e.(*luaast.Index)
	if !ok || !f.isPcallError(i) {
		return nil
	}
	if key, ok := i.Key.(*luaast.Str); !ok || key.Value != "err" {
		return nil
	}
	if v := localVar(i.Obj); v.Writes == 0 && v.Func == nil {
		return []*luaast.Call{v.Init.(*luaast.Call)}
	}
	return nil
}

// justAssigned is what the statement before the one that e stands in gives to the local.
func (f flow) justAssigned(e luaast.Expr, v *luaast.Var) luaast.Expr {
	var at luaast.Node = e
	for at != nil {
		if _, ok := at.(luaast.Stmt); ok {
			break
		}
		at = f.parents[at]
	}
	s, ok := at.(*luaast.If)
	if !ok {
		return e // a loop comes back to its condition
	}
	place := f.placeOf(s)
	if place.index < 1 {
		return e
	}
	a, ok := place.block.stmts[place.index-1].(*luaast.Assign)
	if !ok || len(a.Targets) != 1 || len(a.Exprs) != 1 || localVar(a.Targets[0]) != v {
		return e
	}
	return a.Exprs[0]
}
