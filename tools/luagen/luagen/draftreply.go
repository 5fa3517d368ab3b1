package luagen

import (
	"fmt"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// lists are commands that reply with a list of texts; with scores or options it still is flat.
var lists = map[string]bool{
	"LRANGE": true, "ZRANGE": true, "ZREVRANGE": true, "ZRANGEBYSCORE": true, "ZREVRANGEBYSCORE": true,
	"SMEMBERS": true,
	"HKEYS":    true, "HVALS": true, "HGETALL": true,
}

// replyType guesses the type of the reply from the returns of the main chunk; "" where nothing is returned.
func (d *drafter) replyType() string {
	found, optional := "", false
	for _, r := range returns(d.Body.Body) {
		if len(r.Exprs) == 0 {
			optional = true
			continue
		}
		switch typ := d.typeOf(r.Exprs[0], 0); {
		case typ == "":
			optional = true
		case typ == "any":
			return typ
		case typ == "error":
		case found == "" || found == typ:
			found = typ
		case strings.HasPrefix(found+typ, "(") && strings.Contains(found+typ, ")("):
			return "any"
		case found == typ+"?" || typ == found+"?":
			found, optional = strings.TrimSuffix(found, "?"), true
		default:
			return "any" // of several kinds
		}
	}
	if !d.alwaysReturns(d.Body.Body) {
		optional = true
	}
	if found == "any" {
		return found
	}
	if optional && found != "" && !strings.HasSuffix(found, "?") && !strings.HasSuffix(found, "[]") {
		found += "?"
	}
	return found
}

// typeOf is "" for nothing, "error" for an error.
func (d *drafter) typeOf(e luaast.Expr, depth int) string {
	if v := localVar(e); v != nil && v.Init != nil && v.Writes == 0 && v.Func == nil && depth < 8 && !d.grown[v] {
		return d.typeOf(v.Init, depth+1)
	}
	switch x := e.(type) {
	case *luaast.Paren:
		return d.typeOf(x.X, depth)
	case *luaast.Const:
		if x.Word == "true" {
			return "bool"
		}
		return ""
	case *luaast.Table:
		return d.tableType(x, depth)
	case *luaast.Call:
		if d.redisName(x.Fn) == "error_reply" {
			return "error"
		}
		if typ := d.commandType(x); typ != "" {
			return typ
		}
		if _, misses := d.replies.missOf(x); misses && builtin(x) == "tonumber" {
			return "int?"
		}
	}
	switch d.formOf(e) {
	case number:
		return "int"
	case truth:
		return "bool"
	case text:
		return "string"
	}
	return "any"
}

// commandType is the type of the reply of a command, "" where the command does not tell.
func (d *drafter) commandType(c *luaast.Call) string {
	f := d.replies
	kind, name := f.commandKind(c)
	switch {
	case f.setsRESP:
	case kind == intReply || name == "ZADD" && !f.hasWord(f.byNode[c].args, "INCR"):
		return "int"
	case kind == intOrFalse:
		return "int?"
	case kind == textReply:
		return "string"
	case kind == textOrFalse || kind == statusOrFalse:
		return "string?"
	case lists[name]:
		return "string[]"
	}
	return ""
}

func (d *drafter) tableType(t *luaast.Table, depth int) string {
	if _, ok := errField(t); ok {
		return "error"
	}
	if depth > 0 {
		return "any"
	}
	if len(t.Items) == 0 || d.isMulti(t.Items[len(t.Items)-1].Value) {
		return "string[]"
	}
	parts := make([]string, len(t.Items))
	for i, item := range t.Items {
		typ := d.typeOf(item.Value, depth+1)
		if typ == "any" || item.Key != nil {
			return "any"
		}
		if typ == "" || typ == "error" {
			typ = "string?"
		}
		parts[i] = fmt.Sprintf("v%d %s", i+1, typ)
	}
	return "(" + strings.Join(parts, ", ") + ")"
}
