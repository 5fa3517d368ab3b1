package luagen

import (
	"fmt"
	"strconv"
	"strings"
)

// functions prints the call and its batch form.
func (e *emitter) functions() {
	name, result := e.GoName, e.resultType()
	e.prose()
	e.facts()
	if result == "" {
		e.printf("func %s(ctx context.Context, c lua.Client, p %sParams) error {\n", name, name)
		e.printf("\t_, err := lua.Run(ctx, c, p.call(), decode%s)\n\treturn err\n}\n\n", name)
		result = "struct{}"
	} else {
		e.printf("func %s(ctx context.Context, c lua.Client, p %sParams) (%s, error) {\n", name, name, result)
		e.printf("\treturn lua.Run(ctx, c, p.call(), decode%s)\n}\n\n", name)
	}
	e.doc(fmt.Sprintf("%sIn queues the call on a batch; the future has its outcome once the batch has run. All else "+
		"is as in %s.", name, name))
	e.printf("func %sIn(b *lua.Batch, p %sParams) *lua.Future[%s] {\n", name, name, result)
	e.printf("\treturn lua.Queue(b, p.call(), decode%s)\n}\n\n", name)
}

// call prints the method that checks the parameters and lays them out as KEYS and ARGV.
func (e *emitter) call() {
	args, keys := strconv.Itoa(len(e.Args)), strconv.Itoa(e.FixedKeys())
	if k := e.VariadicKey(); k != nil {
		keys = sum(keys, strings.TrimPrefix(fmt.Sprintf("%d*len(p.%s)", len(k.Elements()), e.keyField(*k)), "1*"))
	}
	if e.Group != nil {
		args = sum(args, strings.TrimPrefix(fmt.Sprintf("%d*len(p.%s)", len(e.Group.Fields), plural(e.Group.Name)),
			"1*"))
	}
	e.printf("func (p *%sParams) call() *lua.Call {\n", e.GoName)
	e.printf("\tc := lua.NewCall(&%sScript, %s, %s)\n", e.GoName, keys, args)
	for _, p := range e.templateParams() {
		e.printf("\tc.Name(%q, p.%s)\n", p.name, camel(p.name))
	}
	for _, k := range e.Keys {
		e.callKey(k)
	}
	e.printf("\tc.EndKeys()\n")
	for _, a := range e.Args {
		e.callArg(a, "p."+camel(a.Name), "")
	}
	if e.Group != nil {
		e.callGroup()
	}
	e.printf("\treturn c\n}\n\n")
}

func sum(fixed, more string) string {
	if fixed == "0" {
		return more
	}
	return fixed + "+" + more
}

func (e *emitter) callKey(k Key) {
	switch {
	case k.Variadic && (len(k.Fields) > 0 || k.Templated() || e.Tied()):
		e.callRowKeys(k)
	case k.Variadic:
		e.printf("\tc.Keys(%q, p.%s, %d)\n", k.Name, e.keyField(k), k.Max)
	case k.Template != "":
		e.printf("\tc.Key(%q, %s)\n", k.Name, templateExpr(k.Template, "", ""))
	default:
		e.printf("\tc.Key(%q, p.%s)\n", k.Name, e.keyField(k))
	}
}

// templateExpr is the Go expression of a template; the parameter of the element of @keys, if any, has an expression of
// its own.
func templateExpr(template, element, expr string) string {
	parts, _ := splitTemplate(template)
	exprs := make([]string, len(parts))
	for i, p := range parts {
		switch {
		case p.Param == "":
			exprs[i] = strconv.Quote(p.Text)
		case p.Param == element:
			exprs[i] = expr
		default:
			exprs[i] = "p." + camel(p.Param)
		}
	}
	return strings.Join(exprs, " + ")
}

func (e *emitter) callGroup() {
	g := e.Group
	field := "p." + plural(g.Name)
	e.printf("\tc.Group(%q, len(%s), %d, %d)\n\tfor i := range %s {\n", g.Name, field, g.Max, len(g.Fields), field)
	elem := field + "[i]"
	if g.Tuple {
		e.printf("\te := &%s\n", elem)
	}
	for _, f := range g.Fields {
		expr := elem
		if g.Tuple {
			expr = "e." + camel(f.Name)
		}
		e.callArg(Arg{Name: f.Name, Type: f.Type}, expr, "At")
	}
	e.printf("\t}\n")
}

// callArg appends one argument. The elements of a group ("At") travel by reference, so that a batch
// of a thousand does not cost an allocation for each field.
func (e *emitter) callArg(a Arg, expr, at string) {
	switch kind := a.Type.Kind; {
	case kind == String || kind == Bytes:
		ref := "&" + expr
		if a.Type.Optional {
			ref = expr + ".Ptr()"
		}
		e.printf("\tc.%s%s(%s)\n", goKinds[kind].method, at, ref)
	case a.Type.Optional:
		e.printf("\tif v, ok := %s.Get(); ok {\n\t%s\n\t} else {\n\tc.None()\n\t}\n", expr, e.argCall(a, "v"))
	case kind == Int && at != "":
		if e.isExact(a) {
			e.printf("\tc.Exact(%q, %s)\n", a.Name, expr)
		}
		e.printf("\tc.IntAt(&%s)\n", expr)
	default:
		e.printf("\t%s\n", e.argCall(a, expr))
	}
}

// isExact reports an integer that the script reads as a number of Lua.
func (e *emitter) isExact(a Arg) bool {
	return (a.Type.Kind == Int || a.Type.Kind == Uint) && e.numbers[a.Name]
}

func (e *emitter) argCall(a Arg, expr string) string {
	method := goKinds[a.Type.Kind].method
	switch a.Type.Kind {
	case Bool:
		return fmt.Sprintf("c.%s(%s)", method, expr)
	case Float, TimeMillis, TimeSeconds:
		return fmt.Sprintf("c.%s(%q, %s)", method, a.Name, expr)
	case Enum:
		low, high := a.Type.Values[0].Value, a.Type.Values[0].Value
		for _, v := range a.Type.Values {
			low, high = min(low, v.Value), max(high, v.Value)
		}
		return fmt.Sprintf("c.Int(%q, int64(%s), %d, %d)", a.Name, expr, low, high)
	}
	low, high := "math.MinInt64", "math.MaxInt64"
	if a.Type.Kind == Uint {
		low, high = "0", "math.MaxUint64"
	}
	if e.isExact(a) {
		high = "lua.MaxExact"
		if a.Type.Kind == Int {
			low = "-lua.MaxExact"
		}
	}
	if a.Min != nil {
		low = strconv.FormatInt(*a.Min, 10)
	}
	if a.Max != nil {
		high = strconv.FormatInt(*a.Max, 10)
	}
	return fmt.Sprintf("c.%s(%q, %s, %s, %s)", method, a.Name, expr, low, high)
}
