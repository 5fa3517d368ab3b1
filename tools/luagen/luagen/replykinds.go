package luagen

import (
	"fmt"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// replyKind is what a command replies, as Lua sees it.
type replyKind uint8

const (
	anyReply      replyKind = iota
	intReply                // a number, always
	textReply               // text, always
	textOrFalse             // text, or false where there is nothing
	intOrFalse              // a number, or false where there is nothing
	statusOrFalse           // a status, or false where nothing is done
)

func (k replyKind) String() string {
	if k == intReply || k == intOrFalse {
		return "a number"
	}
	return "text"
}

func (k replyKind) canMiss() bool { return k == textOrFalse || k == intOrFalse || k == statusOrFalse }

var replyKinds = map[string]replyKind{}

func init() {
	for kind, names := range map[replyKind]string{
		intReply: "APPEND BITCOUNT BITOP COPY DBSIZE DECR DECRBY DEL EXISTS EXPIRE EXPIREAT EXPIRETIME HDEL HEXISTS " +
			"HINCRBY HLEN HSETNX " +
			"HSTRLEN INCR INCRBY LINSERT LLEN LPUSH LPUSHX LREM MSETNX PERSIST PEXPIRE PEXPIREAT PEXPIRETIME PFADD " +
			"PFCOUNT PTTL PUBLISH " +
			"RENAMENX RPUSH RPUSHX SADD SCARD SDIFFSTORE SETBIT GETBIT SETNX SETRANGE SINTERCARD SINTERSTORE " +
			"SISMEMBER SMOVE SREM STRLEN " +
			"SUNIONSTORE TOUCH TTL UNLINK XACK XDEL XLEN XTRIM ZCARD ZCOUNT ZINTERSTORE ZLEXCOUNT ZREM " +
			"ZREMRANGEBYLEX ZREMRANGEBYRANK " +
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
var onePop = map[string]bool{"LPOP": true, "RPOP": true, "SPOP": true, "SRANDMEMBER": true, "HRANDFIELD": true,
	"ZRANDMEMBER": true}

// kindOf is what the expression holds when it is the reply of a command, or a local that keeps one and is not assigned
// again.
func (f flow) kindOf(e luaast.Expr) (replyKind, string) {
	if p, ok := e.(*luaast.Paren); ok {
		return f.kindOf(p.X)
	}
	if v := localVar(e); v != nil && v.Writes == 0 && v.Init != nil && v.Func == nil {
		e = v.Init
	}
	if c, ok := e.(*luaast.Call); ok && f.redisName(c.Fn) == "call" {
		return f.commandKind(c)
	}
	return anyReply, ""
}

// commandKind is the kind of the reply of a command, and its name.
func (f flow) commandKind(c *luaast.Call) (replyKind, string) {
	names, rc := f.commandNames(c), f.byNode[c]
	if len(names) != 1 || f.setsRESP {
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
	case name == "SET" && (f.hasWord(rc.args, "NX") || f.hasWord(rc.args, "XX")):
		return statusOrFalse, name
	}
	return replyKinds[name], name
}

// yesNo are the commands that reply 1 or 0; yesNoOfOne do so with this many arguments, the name among them, and count
// the rest.
var (
	yesNo = map[string]bool{
		"PFADD": true, "SETNX": true, "HSETNX": true, "MSETNX": true, "EXPIRE": true, "PEXPIRE": true, "EXPIREAT": true,
		"PEXPIREAT": true, "PERSIST": true, "RENAMENX": true, "COPY": true, "MOVE": true, "SMOVE": true,
		"SISMEMBER": true,
		"HEXISTS":   true, "GETBIT": true, "SETBIT": true,
	}
	yesNoOfOne = map[string]int{
		"DEL": 2, "UNLINK": 2, "EXISTS": 2, "TOUCH": 2, "HDEL": 3, "SADD": 3, "SREM": 3, "ZREM": 3, "XDEL": 3,
		"XACK": 4, "HSET": 4,
	}
)

// isYesNo reports a command whose reply is 1 or 0.
func (f flow) isYesNo(c *luaast.Call) bool {
	args := f.byNode[c].args
	for _, name := range f.commandNames(c) {
		if n := len(args); !yesNo[name] && (n != yesNoOfOne[name] || f.isMulti(args[n-1])) {
			return false
		}
	}
	return true
}

// okay are commands that reply with a status, as SET does.
var okay = map[string]bool{
	"SETEX": true, "PSETEX": true, "MSET": true, "RENAME": true, "LSET": true, "LTRIM": true, "HMSET": true,
	"PFMERGE": true, "TYPE": true,
}

// replyForm is the form of a command's reply, where the command tells.
func (f flow) replyForm(c *luaast.Call) form {
	kind, name := f.commandKind(c)
	switch {
	case kind == intReply || kind == intOrFalse:
		return number
	case kind == textReply || kind == textOrFalse:
		return text
	case okay[name] || name == "SET" && f.setsPlainly(f.byNode[c].args):
		return status
	}
	return reply
}

// setsPlainly reports that none of the options of SET can be GET or one of a newer server.
func (f flow) setsPlainly(args []luaast.Expr) bool {
	for i := 3; i < len(args); i++ {
		word, ok := args[i].(*luaast.Str)
		if !ok {
			return false
		}
		switch option := strings.ToUpper(word.Value); option {
		case "NX", "XX", "KEEPTTL":
		default:
			if _, takesTime := unitWords[option]; !takesTime {
				return false
			}
			i++
		}
	}
	return true
}

// checkKinds reports what a reply of this kind can never be, and a reply that is false where nothing is, used as if it
// were there.
func (b *body) checkKinds() {
	f := b.flow()
	f.setsRESP, f.tried, f.typed = b.usesRESP(), f.triedVars(), f.typedVars()
	luaast.Inspect(b.Body.Body, func(n, parent luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Binary:
			f.checkKindOp(n)
			if n.Op == "and" {
				f.checkKindTruth(n.L)
			}
		case *luaast.Unary:
			switch {
			case n.Op == "not":
				f.checkKindTruth(n.X)
			case n.Op == "-":
				f.checkMiss(n.X, "in arithmetic")
			case n.Op == "#" && !f.bare:
				f.checkMissOr(n.X, "for its length", "''")
			}
		case *luaast.Index:
			f.checkErrOfNumber(n)
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
			f.checkMissedText(n)
		}
		return true
	})
	f.checkMissedReplies()
}

// checkErrOfNumber reports r.err of a redis.pcall that gives a number where it succeeds, unless the script asks for its
// type.
func (f flow) checkErrOfNumber(i *luaast.Index) {
	key, ok := i.Key.(*luaast.Str)
	if !ok || key.Value != "err" || !f.isPcallError(i) {
		return
	}
	v := localVar(i.Obj)
	kind, name := f.commandKind(v.Init.(*luaast.Call))
	if kind == intReply && v.Writes == 0 && v.Func == nil && !f.typed[v] {
		f.at(i, "R009", "the reply of "+name+" is a number, and .err of a number raises an error",
			fmt.Sprintf("ask first: type(%s) == 'table' and %s.err", v.Name, v.Name))
	}
}

// typedVars are the locals whose type the script asks for, or that a function of it may ask.
func (f flow) typedVars() map[*luaast.Var]bool {
	typed := map[*luaast.Var]bool{}
	luaast.Inspect(f.Body.Body, func(n, parent luaast.Node) bool {
		name, ok := n.(*luaast.Name)
		c, isCall := parent.(*luaast.Call)
		if ok && isCall && name.Var != nil && (builtin(c) == "type" || f.localFunc(c) != nil) {
			typed[name.Var] = true
		}
		return true
	})
	return typed
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
	if kind == anyReply || kind == statusOrFalse || f.isOneOfSeveral(n, side) {
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
	f.at(n, "R009", fmt.Sprintf("the reply of %s is %s, and here it is compared with %s: %s", name, kind, against,
		what), cure)
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

// checkKindTruth reports a condition on a number: 0 is true in Lua. Outside of a condition, too, `not` asks for truth,
// and `and` for that of its left side: checkKinds sees to these. A number before `or` may be there for its value.
func (f flow) checkKindTruth(cond luaast.Expr) {
	switch e := cond.(type) {
	case *luaast.Paren:
		f.checkKindTruth(e.X)
		return
	case *luaast.Binary:
		if e.Op == "or" {
			f.checkKindTruth(e.L)
		}
		if e.Op == "and" || e.Op == "or" {
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
