package luagen

import (
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/internal/spelling"
	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// members are the functions of the libraries, the same on all servers. Later versions of Lua have others.
var members = map[string][]string{
	"string": strings.Fields("byte char dump find format gfind gmatch gsub len lower match rep reverse sub upper"),
	"table":  strings.Fields("concat foreach foreachi getn insert maxn remove setn sort"),
	"math": strings.Fields("abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp ldexp log log10 max min " +
		"mod " +
		"modf pow rad random randomseed sin sinh sqrt tan tanh"),
	"bit":       strings.Fields("arshift band bnot bor bswap bxor lshift rol ror rshift tobit tohex"),
	"struct":    strings.Fields("pack size unpack"),
	"cmsgpack":  strings.Fields("pack unpack unpack_limit unpack_one"),
	"coroutine": strings.Fields("create resume running status wrap yield"),
	"os":        {"clock"},
}

// instead is what a script writes for a function that scripts look for.
var instead = map[string]string{
	"table.unpack": "write unpack(list)", "table.pack": "write {...}",
	"os.time": "the time is redis.call('TIME')[1]", "os.date": "the time is redis.call('TIME')[1]",
}

// missingFunction is the library's function that the node calls and no server has, "" for all else.
func (b *body) missingFunction(n luaast.Node) string {
	i, ok := n.(*luaast.Index)
	if !ok {
		return ""
	}
	c, isCall := b.parents[i].(*luaast.Call)
	name := library(i)
	lib, function, _ := strings.Cut(name, ".")
	called := isCall && c.Fn == luaast.Expr(i) && c.Method == ""
	if !called || len(members[lib]) == 0 || slices.Contains(members[lib], function) {
		return ""
	}
	return name
}

// checkFunction reports the call of a function that its library does not have, unless the script asks for it.
func (b *body) checkFunction(i *luaast.Index) {
	name := b.missingFunction(i)
	if name == "" || b.asksFor(name) || b.elsewhere != nil && b.elsewhere(name) {
		return
	}
	lib, function, _ := strings.Cut(name, ".")
	cure := instead[name]
	if near := spelling.Nearest(function, members[lib]); cure == "" && near != "" {
		cure = "did you mean " + lib + "." + near + "?"
	} else if cure == "" {
		cure = "no server has it: write a local function"
	}
	b.at(i, "G002", "unknown function "+name, cure)
}

// asksFor reports that the script names the function without a call of it: a test, or one of its own in its place.
func (b *body) asksFor(name string) bool {
	found := false
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		i, ok := n.(*luaast.Index)
		found = found || ok && library(i) == name && b.missingFunction(i) == ""
		return !found
	})
	return found
}
