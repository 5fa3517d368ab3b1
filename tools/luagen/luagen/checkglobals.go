package luagen

import (
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/internal/spelling"
	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// knownGlobals are the names every supported server has.
var knownGlobals = map[string]bool{
	"KEYS": true, "ARGV": true, "redis": true, "assert": true, "error": true, "getmetatable": true, "ipairs": true,
	"math": true,
	"next": true, "pairs": true, "pcall": true, "rawequal": true, "rawget": true, "rawset": true, "select": true,
	"setmetatable": true, "string": true, "table": true, "tonumber": true, "tostring": true, "type": true,
	"unpack": true, "xpcall": true,
	"collectgarbage": true, "coroutine": true, "gcinfo": true, "_G": true, "_VERSION": true,
}

// libraries are those that a header names with @uses: each has a trap, or is not on every server.
var libraries = map[string]string{
	"cjson":    "a round trip turns [] into {} and rounds integers above 2^53",
	"cmsgpack": "miniredis does not have it",
	"struct":   "miniredis does not have it",
	"bit":      "miniredis does not have it",
}

// refusedGlobals are no part of a script's world, and why.
var refusedGlobals = map[string]string{
	"load":       "code comes from the file alone",
	"loadstring": "code comes from the file alone",
	"server":     "only Valkey has it: use redis",
	"os":         "Redis 7.0 does not have it: the time is redis.call('TIME')",
}

// onSome are those that some servers have: a run with targets asks these.
var onSome = map[string]bool{"server": true, "os": true}

// knownRedis are the functions of the redis table that work the same everywhere.
var knownRedis = map[string]bool{
	"call": true, "pcall": true, "error_reply": true, "status_reply": true, "sha1hex": true, "log": true,
	"LOG_DEBUG": true, "LOG_VERBOSE": true, "LOG_NOTICE": true, "LOG_WARNING": true,
}

func (b *body) checkGlobals() {
	names := make([]string, 0, len(knownGlobals))
	for name := range knownGlobals {
		names = append(names, name)
	}
	nearest := map[string]string{}
	included := b.bare && includes.MatchString(b.Source)
	for _, g := range b.Body.Globals {
		name := g.Name.Name
		why, refused := refusedGlobals[name]
		trap, isLibrary := libraries[name]
		missing := b.without(name)
		switch {
		case g.Write && b.elsewhere != nil && b.elsewhere(name):
		case g.Write:
			b.at(g, "G001", "write to the global "+name, "Redis refuses it at run time: write local "+name)
		case len(missing) > 0 && b.missingFunction(b.parents[g.Name]) == "":
			b.at(g, "P001", name+" is not on "+strings.Join(missing, ", "), "pass opaque bytes, or fields as arguments")
		case b.missingFunction(b.parents[g.Name]) != "":
		case refused && !(b.bare && !onSome[name]) && !(onSome[name] && len(b.targets) > 0):
			b.at(g, "P001", name+" is refused", why)
		case isLibrary && !b.bare && !b.uses(name):
			b.at(g, "P001", name+" is used without ---@uses "+name, trap+": add ---@uses "+name+", or do without")
		case isLibrary || refused:
		case !knownGlobals[name] && !included && !(b.elsewhere != nil && b.elsewhere(name)):
			cure := "declare it with local before this line"
			if _, known := nearest[name]; !known {
				nearest[name] = nearestGlobal(name, names, b.Body.Vars)
			}
			if near := nearest[name]; near != "" {
				cure = "did you mean " + near + "?"
			}
			if name == "print" {
				cure = "no server has it: use redis.log(redis.LOG_NOTICE, text)"
			}
			b.at(g, "G002", "unknown global "+name, cure)
		}
	}
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Index:
			b.checkLibrary(n)
			b.checkFunction(n)
		case *luaast.Assign:
			b.checkShared(n.Targets...)
		case *luaast.FuncStmt:
			b.checkShared(n.Target)
		case *luaast.Call:
			if changesTable(n) && isShared(n.Args[0]) {
				b.atShared(n, n.Args[0])
			}
		}
		return true
	})
}

// checkShared reports a write to a field of a table that all scripts share.
func (b *body) checkShared(targets ...luaast.Expr) {
	for _, target := range targets {
		if i, ok := target.(*luaast.Index); ok && isShared(i.Obj) {
			b.atShared(i, i.Obj)
		}
	}
}

func (b *body) atShared(at luaast.Node, table luaast.Expr) {
	b.at(at, "G001", "write to "+b.text(table)+", a table that all scripts share",
		"Redis refuses it at run time: write a local, or a local function")
}

// isShared reports a table that the server protects. KEYS and ARGV are the script's own.
func isShared(e luaast.Expr) bool {
	n, ok := e.(*luaast.Name)
	return ok && n.Var == nil && (len(members[n.Name]) > 0 || libraries[n.Name] != "" ||
		slices.Contains([]string{"_G", "redis", otherRedis}, n.Name))
}

// changesTable reports a call that writes to its first argument.
func changesTable(c *luaast.Call) bool {
	return (isGlobal(c.Fn, "rawset") || isGlobal(c.Fn, "setmetatable")) && len(c.Args) > 0
}

// seeded reports whether the script gives math.random a seed that can differ from call to call.
func (b *body) seeded() bool {
	found := false
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		if c, ok := n.(*luaast.Call); ok && library(c.Fn) == "math.randomseed" && len(c.Args) > 0 {
			_, fixed := c.Args[0].(*luaast.Number)
			found = found || !fixed
		}
		return !found
	})
	return found
}

func nearestGlobal(name string, known []string, vars []*luaast.Var) string {
	all := append([]string(nil), known...)
	for _, v := range vars {
		all = append(all, v.Name)
	}
	best := spelling.Nearest(name, all)
	if len(best) < 3 {
		return "" // short names are near to everything
	}
	return best
}

func (b *body) checkLibrary(i *luaast.Index) {
	switch name := library(i); {
	case name == "math.random" && !b.seeded():
		b.at(i, "N001", name+" without a seed gives the same sequence in every server process",
			"pass randomness as an argument, or seed it with one: math.randomseed(tonumber(ARGV[1]))")
	case name == "redis.setresp":
		b.at(i, "R005", "redis.setresp changes the types of replies",
			"remove it: luatomic decodes RESP2 and RESP3 alike")
	case len(b.without(name)) > 0:
		b.at(i, "P001", name+" is not on "+strings.Join(b.without(name), ", "), "do without it there")
	case isGlobal(i.Obj, "redis"):
		if key, ok := i.Key.(*luaast.Str); ok && !knownRedis[key.Value] && !b.bare {
			b.at(i, "P001", "redis."+key.Value+" is not the same on all servers",
				"do without it: redis.call, pcall, error_reply, sha1hex and log are")
		}
	}
}

// uses reports whether the header names the library with @uses.
func (b *body) uses(name string) bool {
	return slices.ContainsFunc(b.Uses, func(u Clause) bool { return u.Word == name })
}

// checkRoundTrips reports a stored value that goes through cjson and back: empty arrays and large integers do not
// survive it.
func (b *body) checkRoundTrips() {
	if b.bare {
		return // what the value holds cannot be told
	}
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		c, ok := n.(*luaast.Call)
		if !ok || library(c.Fn) != "cjson.encode" || len(c.Args) != 1 {
			return true
		}
		v := localVar(c.Args[0])
		if v == nil || v.Init == nil {
			return true
		}
		if from, ok := v.Init.(*luaast.Call); ok && library(from.Fn) == "cjson.decode" {
			b.at(
				c,
				"J001",
				v.Name+" was decoded and is encoded again",
				"[] becomes {} and integers above 2^53 lose digits: keep such fields apart",
			)
		}
		return true
	})
}
