package luagen

import (
	"slices"
	"strconv"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// repeatable are the writes that leave the same behind when they run twice, or find nothing to do. A command that is in
// neither table takes or adds once more.
var repeatable = strings.Fields(`
COPY DEL DELIFEQ EXPIRE EXPIREAT FLUSHALL FLUSHDB FUNCTION|DELETE FUNCTION|FLUSH FUNCTION|LOAD FUNCTION|RESTORE CLUSTER|FLUSHSLOT
GEOADD GEORADIUS GEORADIUSBYMEMBER GEOSEARCHSTORE GETDEL GETEX GETSET
HDEL HEXPIRE HEXPIREAT HGETDEL HGETEX HMSET HPERSIST HPEXPIRE HPEXPIREAT HSET HSETEX HSETNX
LSET MIGRATE MOVE MSET MSETEX MSETNX PERSIST PEXPIRE PEXPIREAT PFADD PFDEBUG PFMERGE PSETEX RENAME RENAMENX RESTORE RESTORE-ASKING
SADD SDIFFSTORE SET SETBIT SETEX SETNX SETRANGE SINTERSTORE SMOVE SORT SREM SUNIONSTORE UNLINK VADD VREM VSETATTR
XACK XCLAIM XDEL XGROUP|CREATE XGROUP|CREATECONSUMER XGROUP|DELCONSUMER XGROUP|DESTROY XGROUP|SETID XSETID XTRIM
ZDIFFSTORE ZREM ZREMRANGEBYLEX ZREMRANGEBYSCORE`)

// repeatableWith are those that are so with some arguments. What is not known of them counts as such.
var repeatableWith = map[string]func(b *body, args []luaast.Expr) bool{
	// Behind the option stand values.
	"ZADD":       func(b *body, args []luaast.Expr) bool { return !b.hasWord(args[:max(0, len(args)-2)], "INCR") },
	"BITFIELD":   func(b *body, args []luaast.Expr) bool { return !b.hasWord(args[:max(0, len(args)-2)], "INCRBY") },
	"XREADGROUP": func(b *body, args []luaast.Expr) bool { return !b.hasWord(args, ">") }, // else what is pending
	"LREM": func(_ *body, args []luaast.Expr) bool {
		count, known := indexAt(args, 2)
		return !known || count == 0
	},
	"LTRIM": func(_ *body, args []luaast.Expr) bool { return keepsEnds(args[1:]) },
	// One that is counted from both ends keeps so many: there is nothing more to remove.
	"ZREMRANGEBYRANK": func(_ *body, args []luaast.Expr) bool {
		start, known := indexAt(args, 2)
		stop, knownStop := indexAt(args, 3)
		return !known || !knownStop || start >= 0 && stop < 0
	},
	"ZUNIONSTORE": (*body).joinsOnce,
	"ZINTERSTORE": (*body).joinsOnce,
	"ZRANGESTORE": func(b *body, args []luaast.Expr) bool {
		if len(args) < 5 || b.text(args[1]) != b.text(args[2]) || b.hasWord(args[5:], "BYSCORE", "BYLEX") {
			return true
		}
		return keepsEnds(args[2:])
	},
	"BITOP": func(b *body, args []luaast.Expr) bool {
		if len(args) < 4 || !b.hasWord(args[1:2], "XOR") && !b.hasWord(args[1:2], "NOT") {
			return true
		}
		to := localVar(args[2])
		return to == nil || !slices.ContainsFunc(args[3:], func(e luaast.Expr) bool { return localVar(e) == to })
	},
}

// keepsEnds reads a range: what it leaves is the same behind the first run, but for one that leaves an end out.
func keepsEnds(args []luaast.Expr) bool {
	start, known := indexAt(args, 1)
	stop, knownStop := indexAt(args, 2)
	return !(known && start > 0) && !(knownStop && stop < -1)
}

// joinsOnce reports that a join of sorted sets does not add to a set that is one of them.
func (b *body) joinsOnce(args []luaast.Expr) bool {
	if len(args) < 4 {
		return true
	}
	onto := slices.ContainsFunc(args[3:], func(e luaast.Expr) bool { return b.text(e) == b.text(args[1]) })
	return !onto || b.hasWord(args[3:], "MIN", "MAX") && !b.hasWord(args[3:], "WEIGHTS")
}

// repeatable reports whether a second run of a write adds nothing to the first.
func (b *body) repeatable(name string, c redisCall) bool {
	if with := repeatableWith[name]; with != nil {
		return with(b, c.args)
	}
	if cmd, _ := lookup(name); cmd.container {
		return true // one of its subcommands, and those that write are repeatable
	}
	return slices.Contains(repeatable, name)
}

// indexAt is an argument that is written as a whole number.
func indexAt(args []luaast.Expr, at int) (n int, known bool) {
	if at >= len(args) {
		return 0, false
	}
	sign := 1
	e := args[at]
	if minus, ok := e.(*luaast.Unary); ok && minus.Op == "-" {
		sign, e = -1, minus.X
	}
	switch e := e.(type) {
	case *luaast.Number:
		return sign * int(e.Value), true
	case *luaast.Str:
		n, err := strconv.Atoi(e.Value)
		return sign * n, err == nil
	}
	return 0, false
}
