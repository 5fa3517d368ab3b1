package luagen

import "github.com/luatomic/luatomic/tools/luagen/luaast"

// knownGlobals are the names every supported server has.
var knownGlobals = map[string]bool{
	"KEYS": true, "ARGV": true, "redis": true, "assert": true, "error": true, "getmetatable": true, "ipairs": true, "math": true,
	"next": true, "pairs": true, "pcall": true, "rawequal": true, "rawget": true, "rawset": true, "select": true,
	"setmetatable": true, "string": true, "table": true, "tonumber": true, "tostring": true, "type": true, "unpack": true, "xpcall": true,
}

// refusedGlobals exist on some servers, and why a script had better not use them.
var refusedGlobals = map[string]string{
	"cjson":      "a round trip through cjson turns [] into {} and rounds 64-bit numbers: pass opaque bytes, or fields as arguments",
	"cmsgpack":   "not every server has it: pass opaque bytes, or fields as arguments",
	"struct":     "not every server has it: pass opaque bytes, or fields as arguments",
	"bit":        "not every server has it: use arithmetic",
	"os":         "not every server has it: ask redis.call('TIME') for the time",
	"load":       "code comes from the file alone",
	"loadstring": "code comes from the file alone",
	"dofile":     "code comes from the file alone",
	"server":     "only Valkey has it: use redis",
	"print":      "no server has it: use redis.log(redis.LOG_NOTICE, text)",
}

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
	for _, g := range b.Body.Globals {
		why, refused := refusedGlobals[g.Name.Name]
		switch {
		case g.Write:
			b.at(g, "G001", "write to the global "+g.Name.Name, "Redis refuses it at run time: write local "+g.Name.Name)
		case refused:
			b.at(g, "P001", g.Name.Name+" is refused", why)
		case !knownGlobals[g.Name.Name]:
			cure := "declare it with local before this line"
			if near := nearestGlobal(g.Name.Name, names, b.Body.Vars); near != "" {
				cure = "did you mean " + near + "?"
			}
			b.at(g, "G002", "unknown global "+g.Name.Name, cure)
		}
	}
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		if i, ok := n.(*luaast.Index); ok {
			b.checkLibrary(i)
		}
		return true
	})
}

func nearestGlobal(name string, known []string, vars []*luaast.Var) string {
	all := append([]string(nil), known...)
	for _, v := range vars {
		all = append(all, v.Name)
	}
	best := nearest(name, all)
	if len(best) < 3 {
		return "" // short names are near to everything
	}
	return best
}

func (b *body) checkLibrary(i *luaast.Index) {
	switch name := library(i); {
	case name == "math.random" || name == "math.randomseed":
		b.at(i, "N001", name+" gives the same sequence in every server process", "pass randomness as an argument")
	case name == "redis.setresp":
		b.at(i, "R005", "redis.setresp changes the types of replies", "remove it: luatomic decodes RESP2 and RESP3 alike")
	case isGlobal(i.Obj, "redis"):
		if key, ok := i.Key.(*luaast.Str); ok && !knownRedis[key.Value] {
			b.at(i, "P001", "redis."+key.Value+" is refused", "servers differ in it; redis.call, pcall, error_reply, sha1hex and log are the same on all")
		}
	}
}
