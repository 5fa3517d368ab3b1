package luagen

import (
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// wholes are commands whose reply is as large as the key.
var wholes = map[string]string{
	"SMEMBERS": "read in parts with SSCAN", "HGETALL": "read the fields you need with HMGET, or in parts with HSCAN",
	"HKEYS": "read in parts with HSCAN", "HVALS": "read in parts with HSCAN", "SUNION": "store it and read in parts",
	"SINTER": "store it and read in parts", "SDIFF": "store it and read in parts",
}

// servers are commands that walk or drop the whole keyspace.
var servers = map[string]bool{"KEYS": true, "FLUSHALL": true, "FLUSHDB": true, "SWAPDB": true}

// checkBounded reports reads that block the server for as long as the key is large.
func (b *body) checkBounded(c redisCall, name string) {
	word := func(i int) string {
		if i < 0 || i >= len(c.args) {
			return ""
		}
		switch e := c.args[i].(type) {
		case *luaast.Str:
			return strings.ToUpper(e.Value)
		case *luaast.Number, *luaast.Unary:
			return b.text(e)
		}
		return ""
	}
	has := func(want string) bool {
		for i := range c.args {
			if word(i) == want {
				return true
			}
		}
		return false
	}
	// A range from a value to itself is one element, or those that share it.
	oneValue := len(c.args) > 3 && b.text(c.args[2]) == b.text(c.args[3])
	cure := ""
	switch {
	case name == "SELECT":
		b.at(c.args[0], "B003", "SELECT leaves the database of the call, and a cluster has no other",
			"run the script on a client of that database")
		return
	case servers[name]:
		b.at(c.args[0], "B003", name+" takes the whole database",
			"no script may do that: keep an index key of what you want to visit")
		return
	case name == "HGETALL" && b.bare: // a record, more often than not
	case wholes[name] != "":
		cure = wholes[name]
	case name == "LRANGE" || name == "ZREVRANGE" || name == "ZRANGE" && !has("BYSCORE") && !has("BYLEX"):
		if word(2) == "0" && word(3) == "-1" {
			cure = "ask for a range with an end"
		}
	case name == "ZRANGE" || name == "ZRANGEBYSCORE" || name == "ZREVRANGEBYSCORE" || name == "ZRANGEBYLEX" ||
		name == "ZREVRANGEBYLEX":
		if !has("LIMIT") && !oneValue {
			cure = "add 'LIMIT', 0, max"
		}
	case name == "XRANGE" || name == "XREVRANGE" || name == "XREAD" || name == "XREADGROUP":
		if !has("COUNT") && !(oneValue && strings.HasSuffix(name, "RANGE")) {
			cure = "add 'COUNT', max"
		}
	}
	if cure != "" && !b.isMulti(c.args[len(c.args)-1]) {
		b.at(c.node, "B002", name+" without a bound",
			cure+"; if the key is small by design, say so: ---@allow B002 reason")
	}
}

// text is the source of an expression.
func (b *body) text(e luaast.Expr) string {
	span := e.Extent()
	return strings.ReplaceAll(b.Source[span.Start.Off:span.End], " ", "")
}
