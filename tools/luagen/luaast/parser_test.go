package luaast_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
	"github.com/stretchr/testify/require"
)

// The outcomes are those of SCRIPT LOAD on Redis 7.0; the shebang is the one exception, refused on purpose.
var accepted = []string{
	"", "return 1", "return 1;", "return", "return;", "local a = 1; local b", "local goto = 1 return goto", "goto = 1",
	"return 0x10", "return 0x1p4", "return 1e5", "return 1e+5", "return 3 ..2", "return .5", "return 5.", "return 08",
	"return 0e12", "return 0x1e+1",
	`return "\255"`, `return "\x41"`, `return "\z"`, "return \"a\\\nb\"", "return '\\\r\n'", "return 'a\x00b'",
	"return \"é\"",
	"return [[a]]", "return [[a [[ b ]]", "return [=[a [[ b ]=]", "--[[ a [[ b ]]\nreturn 1",
	"--[=[ a [[ b ]=]\nreturn 1", "-- x", "--[",
	"return {[ [[a]] ]=1}", "return a[[x]]", "local a = {} return a[ [[x]] ]",
	"while true do break end", "while true do break; end", "while true do do break end local x end",
	"do return 1 end local x", "repeat break until true",
	"f(\ng)", "f\n\"x\"", "f\n{}", "f[[\n]](g)", "(a).b = 1", "f().x = 1", "a, b = 1", "('x'):rep(2)", "f''",
	"a.b.c:d{}:e''", "a['end']=1",
	"return ...", "local function f(...) return ... end", "local function f(a, ...) return ... end",
	"local function f(...) return arg end",
	"return {a,}", "return {a;b;}", "return {a=1,['b']=2;3}", "for a,b in x do end", "for i in a,b,c,d do end",
	"repeat local x until x", "repeat return until x",
	"if a then elseif b then else end", "function a.b:c() end", "local a, b = 1, 2, 3", "return not not a",
	"return - - 1", "return --1\n2",
	"return -2^2", "return 2^-3", "return a == b == c", "return 1 .. 2", "return ({}).x", "return (function() end)()",
	"return (1)(2)",
	"return f 'a' 'b'", "return f{}{}", "return a.b'c'.d", "\v\f return 1", "a=1\rb=2", "return{}", "return'x'",
	"local x x = 1", "local a local b",
	"return 1\x00", "return 1\x00e5", "return 1\x00\x00", "return .5\x00_x", "return 'a' .\x00 'b'",
	"local function f(.\x00\x00) end",
	"f() f() f()", "a=b c=d", "local f = function(a, a) end", "local a, a = 1",
}

var refused = []string{
	"return 1;;", ";", "local a = 1;;", ";local a", "goto x", "::x::", "return 0x1p-4", "return 0x1p", "return 0x.8",
	"return 0x", "return 0xg",
	"return 1e", "return 1e+", "return 3..2", "return 5..", "return 1.2.3", "return 1_0", "return 1a", "return 0xA.8p0",
	`return "\300"`, "return \"a\nb\"", "return 'a", `return "\`, "return [[a [[ b ]] ]]", "return [=a",
	"return [==[a]=]]==]x", "return [[a", "--[=[a\nreturn 1",
	"--[[ unfinished", "return [=", "break", "while true do break return end", "return return", "return 1 local x",
	"while 1 do local f = function() break end end",
	"while true do break 1 end", "local a = f\n(g)()", "f\n(g)", "f[[\n\n]]\n(g)", "a.b\n(c)", "(a) = 1", "f() = 1",
	"a, f() = 1", "a, (b) = 1,2", "a:b = 1",
	"a", "a.b", "1", "'x'", "'x':rep(2)", "a:b", "a.1", "a.end", "local function f() return ... end",
	"local function f(..., a) end", "local function f(a,) end",
	"f(...,)", "f(a,)", "return {;}", "return {,}", "return {a.b=1}", "return {[1]}", "for i=1 do end",
	"for i=1,2,3,4 do end", "for a,b=1,2 do end", "for a.b=1,2 do end",
	"repeat until", "if a then else elseif b then end", "if a end", "while do end", "function a:b.c() end",
	"function () end", "local function a.b() end", "local a.b = 1",
	"local", "local 1", "local a =", "return a and", "return a != b", "return a = b", "return 1..2", "return a//b",
	"return a & b", "return a << b", "return ~a", "x += 1",
	"return a ? b : c", "continue", "return @", "local é = 1", "\x00", "local a \x00", "return nil.x", "return {}.x",
	"return function f() end", "return 1(2)", "return 'a' 'b'",
	"return 1\x00.5", "return 0x10\x00zz", "return 1e5\x00", "return 1\x00\x00\x00", "return 'a' .\x00. 'b'",
	"return 1e\x00", "return .\x00",
	"return (a", "return a)", "end", "do", "do end end", "if", "\ufeffreturn 1", "#!lua\nreturn 1",
	"#comment\nreturn 1", "local a <const> = 1", "return a.b:c",
}

func TestSyntax(t *testing.T) {
	t.Parallel()
	for _, src := range accepted {
		_, err := luaast.Parse(src)
		require.NoError(t, err, "%q", src)
	}
	for _, src := range refused {
		_, err := luaast.Parse(src)
		require.Error(t, err, "%q", src)
	}
}

func locals(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "local v%d = 1\n", i)
	}
	return b.String()
}

func upvalues(n int) string {
	src := locals(n) + "local function f() return 0"
	for i := range n {
		src += fmt.Sprintf(" + v%d", i)
	}
	return src + " end"
}

func list(n int, value string) string { return strings.TrimSuffix(strings.Repeat(value+",", n), ",") }

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d,", i)
	}
	return b.String()
}

// behind returns an expression behind so many locals that it has 54 registers.
func behind(expr string) string { return locals(195) + "return " + expr }

// nest puts n openers and closers around a middle.
func nest(n int, before, open, middle, end, after string) string {
	return before + strings.Repeat(open, n) + middle + strings.Repeat(end, n) + after
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		make func(n int) string
		most int
	}{
		{"locals", locals, 200},
		{"locals before a numeric for", func(n int) string { return locals(n) + "for i=1,2 do end" }, 196},
		{"locals before a generic for", func(n int) string { return locals(n) + "for a,b in c do end" }, 195},
		{"locals of a vararg function", func(n int) string {
			return "local function f(...)\n" + locals(n) + " end"
		}, 199},
		{"upvalues", upvalues, 60},
		{"parentheses", func(n int) string { return nest(n, "return ", "(", "1", ")", "") }, 198},
		{"blocks", func(n int) string { return nest(n, "", "do ", "", "end ", "") }, 199},
		{"tables", func(n int) string { return nest(n, "return ", "{", "", "}", "") }, 199},
		{"repeats", func(n int) string { return nest(n, "", "repeat ", "", "until a ", "") }, 199},
		{"indexes", func(n int) string { return nest(n, "return a", "[a", "", "]", "") }, 198},
		{"minuses", func(n int) string { return nest(n, "return ", "- ", "1", "", "") }, 198},
		{"concatenations", func(n int) string { return nest(n, "return 1", " .. 1", "", "", "") }, 198},
		{"targets of an assignment", func(n int) string { return strings.Repeat("a,", n-1) + "b = 1" }, 200},
		{"arguments", func(n int) string { return "f(" + list(n, "1") + ")" }, 248},
		{"arguments of a method", func(n int) string { return "a:f(" + list(n, "1") + ")" }, 247},
		{"arguments behind locals", func(n int) string { return locals(n) + "f(" + list(60, "1") + ")" }, 188},
		{"calls in calls", func(n int) string { return nest(n, "return ", "f(1,2,", "1", ")", "") }, 82},
		{"values of return", func(n int) string { return "return " + list(n, "1") }, 249},
		{"values of local", func(n int) string { return "local a = " + list(n, "1") }, 249},
		{"values of an assignment", func(n int) string { return "a = " + list(n, "1") }, 249},
		{"concatenations behind locals", func(n int) string { return behind(nest(n, "a", " .. a", "", "", "")) }, 53},
		{"sums behind locals", func(n int) string { return behind(nest(n, "", "a + (", "1", ")", "")) }, 54},
		{"indexes behind locals", func(n int) string { return behind(nest(n, "", "t[a + ", "1", "]", "")) }, 27},
		{"tables behind locals", func(n int) string { return behind(nest(n, "", "{1,2,", "1", "}", "")) }, 17},
		{"targets behind locals", func(n int) string { return locals(195) + list(n, "a[b]") + " = 1" }, 18},
		{"constants", func(n int) string { return "return {" + numbers(n) + "}" }, 1<<18 - 1},
		{"an if", func(n int) string { return nest(n, "if a then ", "f() ", "", "", "end") }, 1<<16 - 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := luaast.Parse(c.make(c.most))
			require.NoError(t, err)
			_, err = luaast.Parse(c.make(c.most + 1))
			require.Error(t, err)
		})
	}
}

func TestErrorPositions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ src, want string }{
		{"local a = 1;;", "1:13: expected an expression, found ';'"},
		{"local a\n  = )", "2:5: expected an expression, found ')'"},
		{"if a then\n\n", "3:1: expected 'end' to close 'if' of line 1, found the end of the file"},
		{"return 'a\n", "1:8: unfinished string"},
		{"x = [[\r\n\r\na", "1:5: unfinished long string"},
		{"return 'x' 1..2", "1:12: malformed number 1..2"},
	} {
		_, err := luaast.Parse(c.src)
		require.EqualError(t, err, c.want)
	}
}

func TestResolvesNames(t *testing.T) {
	t.Parallel()
	chunk, err := luaast.Parse("local a, b = 1, a\nlocal function f(a) a = b return a end\nfor a = a, g do a() " +
		"end\nc = b\nfunction d.e:f() return self end")
	require.NoError(t, err)
	var globals []string
	for _, g := range chunk.Globals {
		globals = append(globals, fmt.Sprintf("%s:%d:%v", g.Name.Name, g.Start.Line, g.Write))
	}
	require.Equal(t, []string{"a:1:false", "g:3:false", "c:4:true", "d:5:false"}, globals)
	var vars []string
	for _, v := range chunk.Vars {
		vars = append(vars, fmt.Sprintf("%s:%d r%d w%d", v.Name, v.Start.Line, v.Reads, v.Writes))
	}
	require.Equal(t, []string{"a:1 r1 w0", "b:1 r2 w0", "f:2 r0 w0", "a:2 r1 w1", "a:3 r1 w0", "self:5 r1 w0"}, vars)
}

func TestLiteralValues(t *testing.T) {
	t.Parallel()
	chunk, err := luaast.Parse("return 'a\\n\\065\\x\\\nb', [==[\n]]x\r\ny]==], 0x10, 1e3, .5, 0x1p4")
	require.NoError(t, err)
	exprs := chunk.Body[0].(*luaast.Return).Exprs
	require.Equal(t, "a\nAx\nb", exprs[0].(*luaast.Str).Value)
	require.Equal(t, "]]x\ny", exprs[1].(*luaast.Str).Value)
	for i, want := range []float64{16, 1000, 0.5, 16} {
		require.InDelta(t, want, exprs[2+i].(*luaast.Number).Value, 0)
	}
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ src, want string }{
		{"1 + 2 * 3", "(1 + (2 * 3))"},
		{"-a ^ 2", "(- (a ^ 2))"},
		{"2 ^ -3 ^ 4", "(2 ^ (- (3 ^ 4)))"},
		{"a .. b .. c", "(a .. (b .. c))"},
		{"not a == b", "((not a) == b)"},
		{"a or b and c", "(a or (b and c))"},
		{"a - b - c", "((a - b) - c)"},
		{"a < b == c", "((a < b) == c)"},
		{"#a .. b + 1", "((# a) .. (b + 1))"},
	} {
		chunk, err := luaast.Parse("return " + c.src)
		require.NoError(t, err)
		require.Equal(t, c.want, show(chunk.Body[0].(*luaast.Return).Exprs[0]))
	}
}

func show(e luaast.Expr) string {
	switch e := e.(type) {
	case *luaast.Name:
		return e.Name
	case *luaast.Number:
		return fmt.Sprint(e.Value)
	case *luaast.Unary:
		return "(" + e.Op + " " + show(e.X) + ")"
	case *luaast.Binary:
		return "(" + show(e.L) + " " + e.Op + " " + show(e.R) + ")"
	}
	return "?"
}

// Every node lies inside its parent and inside the source.
func checkSpans(t *testing.T, src string, chunk *luaast.Chunk) {
	t.Helper()
	luaast.Inspect(chunk.Body, func(n, parent luaast.Node) bool {
		at := n.Extent()
		if at.Start.Off < 0 || at.End > len(src) || at.Width() < 0 || at.Start.Line < 1 || at.Start.Col < 1 {
			t.Fatalf("%T at %+v in %q", n, at, src)
		}
		if parent != nil && (at.Start.Off < parent.Extent().Start.Off || at.End > parent.Extent().End) {
			t.Fatalf("%T %+v outside its parent %T %+v in %q", n, at, parent, parent.Extent(), src)
		}
		return true
	})
}

func TestSpans(t *testing.T) {
	t.Parallel()
	for _, src := range accepted {
		chunk, err := luaast.Parse(src)
		require.NoError(t, err)
		checkSpans(t, src, chunk)
	}
}

func FuzzLua(f *testing.F) {
	for _, src := range accepted {
		f.Add(src)
	}
	for _, src := range refused {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		chunk, err := luaast.Parse(src)
		if err == nil {
			checkSpans(t, src, chunk)
		}
	})
}

// The error of a function inside a loop is found while fewer locals are visible than outside.
func TestErrorInAFunctionInsideALoop(t *testing.T) {
	t.Parallel()
	const locals = "local a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p\n"
	for _, loop := range []string{"for x = 1, 2 do", "for x in y do", "while y do", "repeat", "do"} {
		_, err := luaast.Parse(locals + loop + "\n  local function z(")
		require.EqualError(t, err, "3:20: expected a name, found the end of the file", loop)
	}
}
