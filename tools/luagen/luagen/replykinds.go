package luagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// replyKind is what a command replies, as Lua sees it.
type replyKind uint8

const (
	anyReply    replyKind = iota
	intReply              // a number, always
	textReply             // text, always
	textOrFalse           // text, or false where there is nothing
	intOrFalse            // a number, or false where there is nothing
)

func (k replyKind) String() string {
	if k == intReply || k == intOrFalse {
		return "a number"
	}
	return "text"
}

func (k replyKind) canMiss() bool { return k == textOrFalse || k == intOrFalse }

var replyKinds = map[string]replyKind{}

func init() {
	for kind, names := range map[replyKind]string{
		intReply: "APPEND BITCOUNT BITOP COPY DBSIZE DECR DECRBY DEL EXISTS EXPIRE EXPIREAT EXPIRETIME HDEL HEXISTS HINCRBY HLEN HSETNX " +
			"HSTRLEN INCR INCRBY LINSERT LLEN LPUSH LPUSHX LREM MSETNX PERSIST PEXPIRE PEXPIREAT PEXPIRETIME PFADD PFCOUNT PTTL PUBLISH " +
			"RENAMENX RPUSH RPUSHX SADD SCARD SDIFFSTORE SETBIT GETBIT SETNX SETRANGE SINTERCARD SINTERSTORE SISMEMBER SMOVE SREM STRLEN " +
			"SUNIONSTORE TOUCH TTL UNLINK XACK XDEL XLEN XTRIM ZCARD ZCOUNT ZINTERSTORE ZLEXCOUNT ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK " +
			"ZREMRANGEBYSCORE ZUNIONSTORE ZRANGESTORE HSET",
		textReply:   "GETRANGE SUBSTR INCRBYFLOAT HINCRBYFLOAT ZINCRBY ECHO",
		textOrFalse: "GET HGET GETSET GETDEL GETEX LINDEX RPOPLPUSH LMOVE ZSCORE",
		intOrFalse:  "ZRANK ZREVRANK",
	} {
		for name := range strings.FieldsSeq(names) {
			replyKinds[name] = kind
		}
	}
}

// onePop are commands that reply one text without a count, and a list with one.
var onePop = map[string]bool{"LPOP": true, "RPOP": true, "SPOP": true, "SRANDMEMBER": true, "HRANDFIELD": true, "ZRANDMEMBER": true}

// kindOf is what the expression holds when it is the reply of a command, or a local that keeps one and is not assigned again.
func (f flow) kindOf(e luaast.Expr) (replyKind, string) {
	if p, ok := e.(*luaast.Paren); ok {
		return f.kindOf(p.X)
	}
	if v := localVar(e); v != nil && v.Writes == 0 && v.Init != nil && v.Func == nil {
		e = v.Init
	}
	c, ok := e.(*luaast.Call)
	if !ok || f.redisName(c.Fn) != "call" || f.setsRESP {
		return anyReply, ""
	}
	names, rc := f.commandNames(c), f.byNode[c]
	if len(names) != 1 {
		return anyReply, ""
	}
	name := names[0]
	switch {
	case name == "ZRANK" && len(rc.args) > 3 || name == "ZREVRANK" && len(rc.args) > 3:
		return anyReply, name
	case onePop[name] && len(rc.args) == 2 && !f.isMulti(rc.args[1]):
		return textOrFalse, name
	case name == "SET" && f.hasWord(rc.args, "GET"):
		return textOrFalse, name
	}
	return replyKinds[name], name
}

// checkKinds reports what a reply of this kind can never be, and a reply that is false where nothing is, used as if it were there.
func (b *body) checkKinds() {
	f := b.flow()
	f.setsRESP, f.tried = b.usesRESP(), f.triedVars()
	luaast.Inspect(b.Body.Body, func(n, parent luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Binary:
			f.checkKindOp(n)
		case *luaast.Unary:
			if n.Op == "-" {
				f.checkMiss(n.X, "in arithmetic")
			}
		case *luaast.If:
			for _, c := range n.Clauses {
				f.checkKindTruth(c.Cond)
			}
		case *luaast.While:
			f.checkKindTruth(n.Cond)
		case *luaast.Call:
			for _, arg := range f.byNode[n].args {
				f.checkMiss(arg, "as an argument")
			}
		}
		return true
	})
	f.checkMissedReplies()
}

func (b *body) usesRESP() bool {
	found := false
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		c, ok := n.(*luaast.Call)
		found = found || ok && b.redisName(c.Fn) == "setresp"
		return !found
	})
	return found
}

func (f flow) checkKindOp(n *luaast.Binary) {
	switch n.Op {
	case "==", "~=", "<", ">", "<=", ">=":
		f.checkSides(n, n.L, n.R)
		f.checkSides(n, n.R, n.L)
	}
	use := ""
	switch n.Op {
	case "..":
		use = "in a text"
	case "+", "-", "*", "/", "%", "^":
		use = "in arithmetic"
	case "<", ">", "<=", ">=":
		use = "in an order"
	}
	if use != "" {
		f.checkMiss(n.L, use)
		f.checkMiss(n.R, use)
	}
}

// checkSides compares the kind of a reply with a literal on the other side.
func (f flow) checkSides(n *luaast.Binary, side, other luaast.Expr) {
	kind, name := f.kindOf(side)
	if kind == anyReply || f.isOneOfSeveral(n, side) {
		return
	}
	cure := "write the number without quotes"
	switch f.formOf(other) {
	case number, fraction:
		if kind == intReply || kind == intOrFalse {
			return
		}
		cure = "compare tonumber(...) of it"
	case text:
		if kind != intReply && kind != intOrFalse {
			return
		}
	default:
		return
	}
	what := "never equal"
	if isOrder(n.Op) {
		what = "an error when compared"
	}
	against := "a number"
	if kind == intReply || kind == intOrFalse {
		against = "text"
	}
	f.at(n, "R009", fmt.Sprintf("the reply of %s is %s, and here it is compared with %s: %s", name, kind, against, what), cure)
}

// isOneOfSeveral reports that the comparison stands beside others of the same value: `v == '0' or v == 0`.
func (f flow) isOneOfSeveral(n *luaast.Binary, side luaast.Expr) bool {
	v := localVar(side)
	if v == nil {
		return false
	}
	top := luaast.Node(n)
	for f.isCondition(f.parents[top]) {
		top = f.parents[top]
	}
	whole, ok := top.(luaast.Expr)
	if !ok {
		return false
	}
	count := 0
	luaast.Inspect([]luaast.Stmt{&luaast.Return{Exprs: []luaast.Expr{whole}}}, func(m, _ luaast.Node) bool {
		if op, ok := m.(*luaast.Binary); ok && op.Op == n.Op && (localVar(op.L) == v || localVar(op.R) == v) {
			count++
		}
		return true
	})
	return count > 1
}

// checkKindTruth reports a condition on a number: 0 is true in Lua.
func (f flow) checkKindTruth(cond luaast.Expr) {
	switch e := cond.(type) {
	case *luaast.Paren:
		f.checkKindTruth(e.X)
		return
	case *luaast.Unary:
		if e.Op == "not" {
			f.checkKindTruth(e.X)
		}
		return
	case *luaast.Binary:
		if e.Op == "and" || e.Op == "or" {
			f.checkKindTruth(e.L)
			f.checkKindTruth(e.R)
		}
		return
	}
	if cond == nil {
		return
	}
	if kind, name := f.kindOf(cond); kind == intReply {
		f.at(cond, "R009", "the reply of "+name+" is a number, and 0 is true in Lua", "compare it: == 1, or > 0")
	}
}

// checkMiss reports a reply that is false, or nil behind tonumber, where nothing is stored.
func (f flow) checkMiss(e luaast.Expr, use string) {
	value, what := e, "false"
	if v := localVar(e); v != nil && v.Writes == 0 && v.Init != nil && v.Func == nil && !f.tried[v] {
		value = v.Init
	} else if v != nil {
		return
	}
	if c, ok := value.(*luaast.Call); ok && builtin(c) == "tonumber" && len(c.Args) == 1 {
		value, what = c.Args[0], "nil"
		if v := localVar(value); v != nil && f.tried[v] {
			return
		}
	}
	kind, name := f.kindOf(value)
	if !kind.canMiss() || f.isPart() || f.asksFirst(e) {
		return
	}
	f.at(e, "R008", fmt.Sprintf("the reply of %s is %s where there is nothing, and here it is used %s", name, what, use),
		"test it first, or give it a value: ... or 0")
}

// isPart reports a script that uses names of other files: they may have asked whether there is something.
func (f flow) isPart() bool {
	return f.elsewhere != nil && slices.ContainsFunc(f.Body.Globals, func(g luaast.Global) bool {
		return !knownGlobals[g.Name.Name] && f.elsewhere(g.Name.Name)
	})
}

// asksFirst reports that the script has asked for stored data on the way to the node: that may show that there is something.
func (f flow) asksFirst(n luaast.Node) bool {
	r := repeats{flow: f, changed: map[any]bool{everyKey{}: true}, met: map[seenAs]bool{}}
	return r.isGuarded(n)
}

// triedVars are the locals that stand in a condition, or are compared, somewhere.
func (f flow) triedVars() map[*luaast.Var]bool {
	tried := map[*luaast.Var]bool{}
	luaast.Inspect(f.Body.Body, func(n, parent luaast.Node) bool {
		name, ok := n.(*luaast.Name)
		if ok && name.Var != nil && !tried[name.Var] {
			tried[name.Var] = f.tries(parent)
		}
		return true
	})
	return tried
}

// tries reports a node that asks whether the value in it is there.
func (f flow) tries(n luaast.Node) bool {
	switch p := n.(type) {
	case *luaast.If, *luaast.While, *luaast.Repeat:
		return true
	case *luaast.Unary:
		return p.Op == "not"
	case *luaast.Binary:
		return p.Op == "and" || p.Op == "or" || p.Op == "==" || p.Op == "~="
	case *luaast.Call:
		return builtin(p) == "type" || builtin(p) == "assert" || f.localFunc(p) != nil
	}
	return false
}

// checkMissedReplies reports a value of the reply that is false where there is nothing, and is not declared so.
func (f flow) checkMissedReplies() {
	if f.bare || f.Reply == nil || f.Merge > 0 {
		return
	}
	for _, r := range returns(f.Body.Body) {
		if len(r.Exprs) == 0 {
			continue
		}
		table, isTable := r.Exprs[0].(*luaast.Table)
		switch {
		case !isTable:
			f.checkMissedReply(r.Exprs[0], *f.Reply, "the reply")
		case f.Reply.Kind == Tuple && len(table.Items) == len(f.Reply.Fields):
			for i, item := range table.Items {
				f.checkMissedReply(item.Value, f.Reply.Fields[i].Type, "field "+f.Reply.Fields[i].Name)
			}
		}
	}
}

func (f flow) checkMissedReply(e luaast.Expr, t Type, what string) {
	if t.Optional || t.Kind == Bool || t.Kind == Any || t.Kind == Array || t.Kind == Tuple {
		return
	}
	if v := localVar(e); v != nil && f.tried[v] {
		return
	}
	if kind, name := f.kindOf(e); kind.canMiss() && !f.asksFirst(e) {
		f.at(e, "R008", fmt.Sprintf("the reply of %s is false where there is nothing, and %s is declared as %s", name, what, typeName(t)),
			"declare "+typeName(t)+"?, or give it a value: ... or '0'")
	}
}
