package luagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/internal/spelling"
	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

func (b *body) checkCommands() {
	for _, c := range b.commands {
		if len(c.args) == 0 {
			b.at(c.node, "C004", "no command", "name one: redis.call('GET', key)")
			continue
		}
		for _, args := range b.callEnvs(c.args[0]) {
			b.checkNamed(c, args)
		}
		b.checkUnpacks(c)
	}
	b.checkHanded()
}

// checkHanded reports redis.call where it is a value: what is run through it is seen by no check.
func (b *body) checkHanded() {
	luaast.Inspect(b.Body.Body, func(n, parent luaast.Node) bool {
		e, ok := n.(luaast.Expr)
		if !ok {
			return true
		}
		index, indexed := parent.(*luaast.Index)
		call, _ := parent.(*luaast.Call)
		switch {
		case call != nil && changesTable(call) && call.Args[0] == e && isShared(e): // G001
		case (isGlobal(e, "redis") || isGlobal(e, otherRedis)) && (!indexed || index.Obj != e):
			b.at(
				e,
				"C003",
				"redis is handed on, and what is called through it cannot be checked",
				"write redis.call where it is called",
			)
		case isGlobal(e, "_G") && !namesOther(index, e):
			b.at(e, "C003", "_G has redis, and what is called through it cannot be checked",
				"write redis.call where it is called")
		case b.isRunner(e) && !b.runs(e, parent):
			b.at(
				e,
				"C003",
				"redis.call is handed on, and what it runs cannot be checked",
				"call it by its name, or hand on a function that does",
			)
		}
		return true
	})
}

// namesOther reports an index of _G by a name that is not that of redis.
func namesOther(i *luaast.Index, globals luaast.Expr) bool {
	if i == nil || i.Obj != globals {
		return false
	}
	key, ok := i.Key.(*luaast.Str)
	return ok && key.Value != "redis" && key.Value != otherRedis && key.Value != "_G"
}

// isRunner reports whether e is redis.call, redis.pcall or a local that stands for one.
func (b *body) isRunner(e luaast.Expr) bool {
	name := b.redisName(e)
	return name == "call" || name == "pcall"
}

// runs reports whether the parent calls e, or names it in a local that stands for it.
func (b *body) runs(e luaast.Expr, parent luaast.Node) bool {
	switch p := parent.(type) {
	case *luaast.Paren:
		return true // judged as what it is
	case *luaast.Call:
		return p.Fn == e || isGlobal(p.Fn, "pcall") && p.Args[0] == e && b.redisName(e) == "call"
	case *luaast.Local:
		for i, init := range p.Exprs {
			if init == e && localVar(e) == nil && i < len(p.Vars) {
				return p.Vars[i].Writes == 0
			}
		}
	}
	return false
}

// callEnvs lists the calls of the function around, when the command is one of its parameters: command and key then
// belong together call by call.
func (b *body) callEnvs(command luaast.Expr) []map[*luaast.Var]luaast.Expr {
	v := localVar(command)
	if v == nil || v.Func == nil || v.Writes > 0 {
		return []map[*luaast.Var]luaast.Expr{nil}
	}
	fn := b.funcVar[v.Func]
	if fn == nil || fn.Writes > 0 || b.escaped[fn] || len(b.callers[fn]) == 0 {
		return []map[*luaast.Var]luaast.Expr{nil}
	}
	var envs []map[*luaast.Var]luaast.Expr
	for _, call := range b.callers[fn] {
		env := map[*luaast.Var]luaast.Expr{}
		for i, p := range v.Func.Params {
			if i < len(call.Args) {
				env[p] = call.Args[i]
			}
		}
		envs = append(envs, env)
	}
	return envs
}

func (b *body) checkNamed(c redisCall, args map[*luaast.Var]luaast.Expr) {
	names, ok := b.tracer(args).namesOf(c.args)
	if !ok {
		b.at(
			c.args[0],
			"C003",
			"the command is not a literal",
			"write its name here, so that its keys and arguments can be checked",
		)
		return
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		b.checkCommand(c, name, args)
	}
}

// replicated are the commands without the flag of a write that replicas may get all the same: EVALSHA_RO refuses them.
// COMMAND does not show that.
var replicated = map[string]bool{"PFCOUNT": true, "PUBLISH": true, "SPUBLISH": true}

func (b *body) checkCommand(c redisCall, name string, args map[*luaast.Var]luaast.Expr) {
	cmd, ok := lookup(name)
	if container, _, isSub := strings.Cut(name, "|"); isSub && !ok {
		b.at(c.args[1], "C001", "unknown command "+spoken(name), "see the subcommands of "+container)
		return
	}
	if !ok && strings.Contains(name, ".") {
		return // a module's: only the server knows
	}
	if !ok {
		cure := "the table holds the core commands of Redis 7.0 to 8.0 and Valkey 8 and 9; for another write " +
			"---@allow C001 reason"
		if near := nearestCommand(name); near != "" {
			cure = "did you mean " + near + "?"
		}
		b.at(c.args[0], "C001", "unknown command "+name, cure)
		return
	}
	b.checkTargets(c, name, cmd)
	if cmd.noscript == cmd.on {
		b.at(c.args[0], "C002", spoken(name)+" is not allowed in scripts", "leave it to the client")
	}
	switch {
	case !b.ReadOnly:
	case cmd.write:
		b.at(c.args[0], "C005", spoken(name)+" writes in a @readonly script",
			"remove @readonly and declare a @contract")
	case replicated[name]:
		b.at(c.args[0], "C005", "EVALSHA_RO refuses "+name+": replicas get it as they get writes",
			"remove @readonly and declare a @contract")
	}
	b.checkArity(c, name, cmd)
	b.checkPairs(c, name, cmd)
	b.checkBounded(c, name)
	for _, spec := range cmd.keys {
		b.checkKeys(c, name, cmd, spec, b.tracer(args))
	}
	if name == "SORT" || name == "SORT_RO" {
		b.checkPatterns(c)
	}
}

// checkPatterns reports the patterns of SORT, which make keys of the elements.
func (b *body) checkPatterns(c redisCall) {
	for i := 2; i+1 < len(c.args); i++ {
		if !b.hasWord(c.args[i:i+1], "BY", "GET") {
			continue
		}
		i++
		if s, ok := c.args[i].(*luaast.Str); !ok || strings.Contains(s.Value, "*") {
			b.reportKey(c.args[i], origin{bad: "a pattern of SORT"})
		}
	}
}

func nearestCommand(name string) string {
	return spelling.Nearest(name, wholeNames())
}

func (b *body) checkArity(c redisCall, name string, cmd command) {
	n := len(c.args)
	open := n > 1 && b.isMulti(c.args[n-1])
	least := n
	if open {
		least--
	}
	words := 1 + strings.Count(name, "|")
	want := fmt.Sprintf("it takes %d", cmd.arity-words)
	switch {
	case cmd.arity > 0 && (least > cmd.arity || !open && n < cmd.arity):
	case cmd.arity < 0 && !open && n < -cmd.arity:
		want = fmt.Sprintf("it takes at least %d", -cmd.arity-words)
	default:
		return
	}
	b.at(c.node, "C004", fmt.Sprintf("%s with %d arguments", spoken(name), n-words), want)
}

// checkKeys wants every key argument to come from KEYS, and its type to fit the command.
func (b *body) checkKeys(c redisCall, name string, cmd command, spec keySpec, trace tracer) {
	n := len(c.args)
	at, _ := c.keysAt(spec)
	for _, i := range at {
		if i >= n {
			continue
		}
		o := trace.argOrigin(c.args[i], i == n-1, spec)
		if o.bad == undeclared || b.bare && !isSurelyNoKey[o.bad] {
			continue
		}
		if o.bad != "" {
			b.reportKey(c.args[i], o)
			continue
		}
		b.checkFamily(c.args[i], name, cmd, spec, o)
	}
}

// keysAt lists the arguments that are keys by the specification; ok is false when their count is no literal.
func (c redisCall) keysAt(spec keySpec) (at []int, ok bool) {
	literal := func(i int) (int, bool) {
		if i >= len(c.args) {
			return 0, false
		}
		return integer(c.args[i])
	}
	word := func(i int) string {
		if s, ok := c.args[i].(*luaast.Str); ok {
			return strings.ToUpper(s.Value)
		}
		return ""
	}
	return spec.keyPositions(len(c.args), literal, word)
}

// argOrigin takes unpack(list) at the end of the arguments as the elements of the list.
func (t tracer) argOrigin(e luaast.Expr, last bool, spec keySpec) origin {
	if call, ok := e.(*luaast.Call); ok && last && builtin(e) == "unpack" && len(call.Args) > 0 {
		if first := t.firstOf(call); first != nil && !spec.counted && spec.last == 0 {
			return t.key(first) // the rest of the list is arguments
		}
		return t.list(e, call.Args[0])
	}
	return t.key(e)
}

// firstOf is the first element of a list that is unpacked from its start, where its constructor shows it.
func (t tracer) firstOf(call *luaast.Call) luaast.Expr {
	v := localVar(call.Args[0])
	if v == nil || v.Writes > 0 || len(call.Args) > 1 {
		return nil
	}
	if table, ok := v.Init.(*luaast.Table); ok && len(table.Items) > 0 && table.Items[0].Key == nil {
		return table.Items[0].Value
	}
	return nil
}

// isSurelyNoKey are the origins that need no look at the header: where there is none, the rest is unknown and not
// reported.
var isSurelyNoKey = map[string]bool{"a concatenation": true, "a literal": true, "an argument": true, "reply data": true,
	"a formatted text": true}

func (b *body) reportKey(arg luaast.Expr, o origin) {
	message := "the key is not one of KEYS but " + o.bad
	if o.at != nil && o.at != arg {
		message += fmt.Sprintf(" (line %d)", o.at.Extent().Start.Line)
	}
	b.at(arg, "K001", message, "declare it with ---@key and pass it, or accept it with ---@allow K001 reason")
}

func (b *body) checkFamily(arg luaast.Expr, name string, cmd command, spec keySpec, o origin) {
	if len(cmd.types) == 0 {
		return
	}
	for _, k := range o.keys {
		// The sorted set commands over several keys take plain sets as sources.
		source := spec.counted && k.Type == "set" && slices.Contains(cmd.types, "zset")
		if k.Type != "" && !slices.Contains(cmd.types, k.Type) && !source {
			b.at(
				arg,
				"K007",
				fmt.Sprintf("%s works on %s, and %s is declared as %s", name, strings.Join(cmd.types, " or "),
					k.Name, k.Type),
				"fix the type in the header, or the key here",
			)
			return
		}
	}
}

// checkUnpacks bounds unpack among the arguments of a command. Of one that gives the command's name, C003 says enough.
func (b *body) checkUnpacks(c redisCall) {
	for i, arg := range c.args {
		call, ok := arg.(*luaast.Call)
		if !ok || builtin(arg) != "unpack" || len(call.Args) == 0 {
			continue
		}
		if i == 0 && len(c.args) > 1 {
			continue
		}
		if i < len(c.args)-1 {
			b.at(arg, "C004", "unpack gives only its first value here",
				"put it last, or build one table of all arguments")
			continue
		}
		if len(call.Args) < 3 && !isGlobal(call.Args[0], "ARGV") && !isGlobal(call.Args[0], "KEYS") &&
			!b.isSmall(call.Args[0]) {
			b.at(arg, "B001", "unpack without a bound", cureOfUnpack(c))
		}
	}
}

// inOne are the commands that mean something else in parts.
var inOne = map[string]bool{"XADD": true, "MSETNX": true, "BITOP": true, "SINTERSTORE": true, "SUNIONSTORE": true,
	"SDIFFSTORE": true, "ZINTERSTORE": true, "ZUNIONSTORE": true, "ZDIFFSTORE": true}

func cureOfUnpack(c redisCall) string {
	if name, ok := c.args[0].(*luaast.Str); ok && inOne[strings.ToUpper(name.Value)] {
		return fmt.Sprintf("one %s takes them all, so refuse more before the first write: if #list > %d then return "+
			"redis.error_reply('TOO_MANY values') end", strings.ToUpper(name.Value), unpackLimit)
	}
	return fmt.Sprintf("unpack in parts of at most %d: unpack(list, i, math.min(i + %d, #list))", unpackLimit,
		unpackLimit-1)
}
