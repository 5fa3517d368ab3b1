package luagen

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// typeName writes a type as the header does.
func typeName(t Type) string {
	name := ""
	switch t.Kind {
	case Enum:
		name = "enum"
	case Tuple:
		name = fmt.Sprintf("a tuple of %d", len(t.Fields))
	case Array:
		return typeName(*t.Elem) + "[]"
	}
	for n, k := range kindNames {
		if k == t.Kind {
			name = n
		}
	}
	if t.Optional {
		name += "?"
	}
	return name
}

// form is what can be told of an expression's value without running it.
type form uint8

const (
	unknown form = iota
	text
	number   // whole as far as can be seen
	fraction // may have digits behind the point
	truth
	status
	function
	reply // of redis.call, its shape not known
)

func (b *body) formOf(e luaast.Expr) form {
	switch e := e.(type) {
	case *luaast.Str:
		return text
	case *luaast.Number:
		if e.Value != math.Trunc(e.Value) {
			return fraction
		}
		return number
	case *luaast.Func:
		return function
	case *luaast.Unary:
		if e.Op == "not" {
			return truth
		}
		return number
	case *luaast.Binary:
		return opForm(e.Op)
	case *luaast.Table:
		if statusField(e) == "ok" {
			return status
		}
	case *luaast.Call:
		return b.callForm(e)
	}
	return unknown
}

func opForm(op string) form {
	switch op {
	case "..":
		return text
	case "/":
		return fraction
	case "+", "-", "*", "%", "^":
		return number
	}
	return truth
}

func (b *body) callForm(c *luaast.Call) form {
	switch b.redisName(c.Fn) {
	case "status_reply":
		return status
	case "sha1hex":
		return text
	case "call", "pcall":
		return reply
	}
	switch name := builtin(c); {
	case name == "tostring" || name == "type" || name == "table.concat" ||
		strings.HasPrefix(name, "string.") && singles[name] && name != "string.len":
		return text
	case name == "tonumber" || name == "math.floor" || name == "math.ceil" || name == "string.len" ||
		name == "math.min" || name == "math.max" || name == "math.abs" || name == "math.sqrt":
		return number
	}
	return unknown
}

// plain checks an expression that is neither a constant nor a table.
func (v replyCheck) plain(e luaast.Expr, t Type, p place) {
	f := v.formOf(e)
	if f == reply {
		f = v.flow.replyForm(e.(*luaast.Call))
	}
	switch t.Kind {
	case Tuple, Array:
		v.notArray(e, f, t, p)
		return
	}
	switch f {
	case status:
		v.status(e, t, p)
	case function:
		v.at(e, "R003", "a function in the reply", "call it")
	case truth:
		if t.Kind != Bool {
			v.at(e, "R003", fmt.Sprintf("a truth value for %s, declared as %s", p, typeName(t)),
				"declare bool, or write condition and 1 or 0")
		}
	case fraction, number:
		v.numeric(e, t, p)
	case text:
		v.textual(e, t, p)
	}
}

// status judges a reply such as that of SET: clients see its text.
func (v replyCheck) status(e luaast.Expr, t Type, p place) {
	switch t.Kind {
	case String, Bytes:
	case Bool:
		v.at(e, "R003", fmt.Sprintf("a status reply for %s, declared as bool", p), "test it: ... and 1 or 0")
	default:
		v.at(e, "R003", fmt.Sprintf("a status reply for %s, declared as %s", p, typeName(t)),
			"return a value of the declared type, or declare string")
	}
}

func (v replyCheck) notArray(e luaast.Expr, f form, t Type, p place) {
	switch {
	case f == unknown:
	case f == reply && (t.Kind == Array || v.fixedReply(e.(*luaast.Call)) == len(t.Fields)):
	case f == reply:
		v.at(e, "R003", "the reply of a command as the declared tuple",
			"put its parts into a table: return "+fieldList(t.Fields))
	default:
		v.shapeless(e, &t, p, "a single value")
	}
}

// fixedReply is the length of the few replies that always have the same, else -1.
func (v replyCheck) fixedReply(c *luaast.Call) int {
	if len(c.Args) == 0 || v.isMulti(c.Args[len(c.Args)-1]) {
		return -1
	}
	name, ok := c.Args[0].(*luaast.Str)
	switch {
	case !ok:
	case strings.EqualFold(name.Value, "HMGET"):
		return len(c.Args) - 2
	case strings.EqualFold(name.Value, "MGET"):
		return len(c.Args) - 1
	case strings.EqualFold(name.Value, "TIME"):
		return 2
	}
	return -1
}

func (v replyCheck) numeric(e luaast.Expr, t Type, p place) {
	n, isLiteral := e.(*luaast.Number)
	switch t.Kind {
	case String, Bytes:
		v.at(e, "R003", fmt.Sprintf("a number for %s, declared as %s", p, typeName(t)),
			"return text: string.format('%.0f', n)")
	case Float:
		v.at(e, "R003", fmt.Sprintf("a number for %s, declared as float", p),
			"Redis cuts numbers to whole ones: return text, string.format('%.17g', n)")
	case Bool:
		c, _ := e.(*luaast.Call)
		switch kind, name := v.flow.commandKind(c); {
		case isLiteral && n.Value != 0 && n.Value != 1:
			v.at(e, "R003", p.String()+" is a bool", "return 1 or 0")
		case kind != anyReply && !v.flow.isYesNo(c):
			v.at(e, "R003",
				fmt.Sprintf("the reply of %s can be another number than 1 and 0, and %s is declared as bool", name, p),
				"compare it: ... > 0 and 1 or 0")
		}
	default:
		v.unit(e, t, p)
		if !v.settled && v.isFraction(e) {
			v.cut(e, p)
		} else if isLiteral {
			v.enumValue(e, int64(n.Value), t, p)
		}
	}
}

func (v replyCheck) cut(e luaast.Expr, p place) {
	v.at(e, "R002", p.String()+" can have a fraction", "Redis cuts it off: say so with math.floor(...)")
}

// unit judges the reply of a command whose unit is known.
func (v replyCheck) unit(e luaast.Expr, t Type, p place) {
	c, _ := e.(*luaast.Call)
	_, name := v.flow.commandKind(c)
	if have, ok := unitReplies[name]; ok && slices.Contains(timed, t.Kind) && t.Kind != have {
		v.at(e, "U001", fmt.Sprintf("%s replies %s, and %s is declared as %s", name, typeName(Type{Kind: have}), p,
			typeName(t)), "declare the unit of the reply, or take the command for this unit")
	}
}

func (v replyCheck) enumValue(e luaast.Expr, n int64, t Type, p place) {
	if t.Kind != Enum {
		return
	}
	for _, have := range t.Values {
		if have.Value == n {
			return
		}
	}
	v.at(e, "R003", fmt.Sprintf("%d is no value of the enum of %s", n, p),
		"add it to the enum, or return one of its numbers")
}

func (v replyCheck) textual(e luaast.Expr, t Type, p place) {
	s, ok := e.(*luaast.Str)
	switch t.Kind {
	case String, Bytes:
		return
	case Float:
		if ok {
			if _, err := strconv.ParseFloat(s.Value, 64); err != nil {
				v.at(e, "R003", fmt.Sprintf("text for %s, declared as float", p), "return the text of a number")
			}
		}
		return
	}
	if !ok {
		return // decimal text is how numbers above 2^53 travel
	}
	n, err := strconv.ParseInt(s.Value, 10, 64)
	if t.Kind == Uint {
		_, err = strconv.ParseUint(s.Value, 10, 64)
	}
	if err != nil {
		v.at(e, "R003", fmt.Sprintf("text for %s, declared as %s", p, typeName(t)),
			"return a number or its decimal text")
		return
	}
	v.enumValue(e, n, t, p)
}
