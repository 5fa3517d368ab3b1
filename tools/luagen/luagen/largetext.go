package luagen

import "github.com/luatomic/luatomic/tools/luagen/luaast"

// largest is the first number that Lua's own conversion to text cuts: it prints 14 digits.
const largest = 1e14

// checkLargeText reports numbers of 15 digits or more that become text.
func (b *body) checkLargeText() {
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Binary:
			if n.Op == ".." {
				b.reportLarge(n.L)
				b.reportLarge(n.R)
			}
		case *luaast.Call:
			for _, e := range b.madeText(n) {
				b.reportLarge(e)
			}
		}
		return true
	})
}

// madeText are the arguments that a call turns into text by Lua's own conversion. redis.call has one of its own, with
// all digits.
func (b *body) madeText(c *luaast.Call) []luaast.Expr {
	switch name := builtin(c); {
	case name == "tostring" && len(c.Args) == 1:
		return c.Args
	case name == "table.concat" && len(c.Args) > 0:
		list := c.Args[0]
		if v := localVar(list); v != nil && v.Writes == 0 && v.Func == nil && v.Init != nil {
			list = v.Init
		}
		table, ok := list.(*luaast.Table)
		if !ok {
			return nil
		}
		var values []luaast.Expr
		for _, item := range table.Items {
			values = append(values, item.Value)
		}
		return values
	case name == "string.format" && len(c.Args) > 1:
		return b.formattedAsText(c)
	}
	return nil
}

// formattedAsText are the arguments of string.format that a %s takes.
func (b *body) formattedAsText(c *luaast.Call) []luaast.Expr {
	format, ok := c.Args[0].(*luaast.Str)
	if !ok {
		return nil
	}
	var values []luaast.Expr
	n := 0
	for i := 0; i < len(format.Value)-1; i++ {
		if format.Value[i] != '%' {
			continue
		}
		i++
		for i < len(format.Value) && (isDigit(format.Value[i]) || format.Value[i] == '.' || format.Value[i] == '-') {
			i++
		}
		if i == len(format.Value) || format.Value[i] == '%' {
			continue
		}
		if n++; n < len(c.Args) && format.Value[i] == 's' {
			values = append(values, c.Args[n])
		}
	}
	return values
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func (b *body) reportLarge(e luaast.Expr) {
	if b.magnitude(e, 0) >= largest {
		b.at(e, "N002", "a number of 15 digits or more becomes text, and Lua prints 14 of them",
			"write string.format('%.0f', n)")
	}
}

// magnitude is about how large a number is for sure, 0 where that cannot be told.
func (b *body) magnitude(e luaast.Expr, depth int) float64 {
	if depth > 16 {
		return 0
	}
	depth++
	switch e := e.(type) {
	case *luaast.Paren:
		return b.magnitude(e.X, depth)
	case *luaast.Number:
		return e.Value
	case *luaast.Name:
		return b.varMagnitude(e.Var, depth)
	case *luaast.Index:
		return b.clockPart(e)
	case *luaast.Call:
		if name := builtin(e); (name == "tonumber" || name == "math.floor" || name == "math.ceil") && len(e.Args) == 1 {
			return b.magnitude(e.Args[0], depth)
		}
	case *luaast.Binary:
		return b.opMagnitude(e, depth)
	}
	return 0
}

func (b *body) opMagnitude(e *luaast.Binary, depth int) float64 {
	l, r := b.magnitude(e.L, depth), b.magnitude(e.R, depth)
	switch e.Op {
	case "+":
		return max(l, r)
	case "-":
		if _, isNumber := e.R.(*luaast.Number); isNumber || r == 0 && !b.isLargeVar(e.R) {
			return l - r
		}
	case "*":
		return l * r
	case "/":
		if _, isNumber := e.R.(*luaast.Number); isNumber && r > 0 {
			return l / r
		}
	}
	return 0
}

// isLargeVar keeps differences apart: what is taken away from a time may be a time.
func (b *body) isLargeVar(e luaast.Expr) bool {
	_, isName := e.(*luaast.Name)
	_, isCall := e.(*luaast.Call)
	_, isIndex := e.(*luaast.Index)
	return isName || isCall || isIndex
}

func (b *body) varMagnitude(v *luaast.Var, depth int) float64 {
	if v == nil || v.Writes > 0 || v.Func != nil || v.Init == nil {
		return 0
	}
	if t, ok := b.argType(v); ok && !b.bare {
		switch t.Kind {
		case TimeMillis:
			return 1e12
		case TimeSeconds:
			return 1e9
		}
		return 0
	}
	return b.magnitude(v.Init, depth)
}

// clockPart is the size of the first element of a reply of TIME.
func (b *body) clockPart(i *luaast.Index) float64 {
	if n, ok := integer(i.Key); ok && n == 1 && b.commandOf(i.Obj) == "TIME" {
		return 1e9
	}
	return 0
}
