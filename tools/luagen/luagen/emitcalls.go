package luagen

import (
	"bytes"
	"fmt"
	"go/format"
	"strings"
)

// callsFile is the name of what Config.Interface adds to the package.
const callsFile = "calls.go"

func callsOrigin(t target) string {
	if t.beside {
		return "*.lua"
	}
	return t.dirs[0] + "/*.lua"
}

// emitCalls returns the text of calls.go: the functions of the package as an interface, on a client, and as a fake.
func emitCalls(scripts []*Script, t target) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s%s%s\n\npackage %s\n\n", generated, callsOrigin(t), doNotEdit, t.pkg)
	var methods, on, fields, fake strings.Builder
	for _, s := range scripts {
		e := emitter{Script: s, target: t}
		name, result, values := s.GoName, "error", "err error"
		if typ := e.resultType(); typ != "" {
			result, values = "("+typ+", error)", "reply "+typ+", err error"
		}
		args := fmt.Sprintf("(ctx context.Context, p %sParams)", name)
		fmt.Fprintf(&methods, "\t%s%s %s\n", name, args, result)
		fmt.Fprintf(&on, "func (o callsOn) %s%s %s { return %s(ctx, o.c, p) }\n\n", name, args, result, name)
		fmt.Fprintf(&fields, "\t%sFunc func%s %s\n", name, args, result)
		fmt.Fprintf(&fake, "// %s calls %sFunc.\nfunc (f *FakeCalls) %s%s (%s) {\n\tif f.%sFunc == nil {\n", name, name,
			name, args, values, name)
		fmt.Fprintf(&fake,
			"\t\terr = errors.New(\"%s: FakeCalls.%sFunc is nil: set it\")\n\t\treturn\n\t}\n\treturn f.%sFunc(ctx, "+
				"p)\n}\n\n", t.pkg, name, name)
	}
	b.WriteString("import (\n\t\"context\"\n\t\"errors\"\n")
	if strings.Contains(methods.String(), "time.") {
		b.WriteString("\t\"time\"\n")
	}
	fmt.Fprintf(&b, "\n\t%q\n)\n\n", runtimePath)
	fmt.Fprintf(&b,
		"// Calls are the scripts of this package, for programs that take them as an interface. CallsOn runs them, "+
			"FakeCalls stands in for\n"+
			"// them in unit tests.\ntype Calls interface {\n%s}\n\n", &methods)
	fmt.Fprintf(&b,
		"// CallsOn returns the Calls that run on a client.\nfunc CallsOn(c lua.Client) Calls { return callsOn{c} "+
			"}\n\n")
	fmt.Fprintf(&b, "type callsOn struct{ c lua.Client }\n\n%s", &on)
	fmt.Fprintf(&b,
		"// FakeCalls are Calls without a server. Each runs the function of its field; where that is nil, it returns "+
			"an error.\n"+
			"type FakeCalls struct {\n%s}\n\nvar _ Calls = (*FakeCalls)(nil)\n\n%s", &fields, &fake)
	text, err := format.Source(b.Bytes())
	if err != nil {
		return nil, fmt.Errorf("luagen: %s: printed Go that does not parse: %w", callsFile, err)
	}
	return text, nil
}

// checkCalls reports a Go name of calls.go that a script makes, too. FakeCalls has a field for each script beside the
// methods.
func checkCalls(scripts []*Script) Diagnostics {
	own := map[string]bool{"Calls": true, "CallsOn": true, "callsOn": true, "FakeCalls": true}
	for _, s := range scripts {
		own[s.GoName+"Func"] = true
	}
	var diags Diagnostics
	for _, s := range scripts {
		e := emitter{Script: s, target: target{beside: true}}
		if s.partial {
			continue
		}
		e.claim(func(name string, pos Pos, what string) {
			if own[name] {
				diags = append(diags, Diagnostic{s.File, pos, 1, "H010",
					fmt.Sprintf("%s makes the Go name %s, which -interface makes too", what, name),
					"rename it, or do without -interface; ---@script Name sets the Go name of a script"})
			}
		})
	}
	return diags
}
