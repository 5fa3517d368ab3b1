package luagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// units are the kinds that a place of a command takes: by the word before it, or by the place itself.
var (
	unitWords  = map[string]Kind{"EX": Seconds, "PX": Millis, "EXAT": TimeSeconds, "PXAT": TimeMillis}
	unitPlaces = map[string]Kind{
		"EXPIRE": Seconds, "PEXPIRE": Millis, "EXPIREAT": TimeSeconds, "PEXPIREAT": TimeMillis, "SETEX": Seconds,
		"PSETEX":  Millis,
		"HEXPIRE": Seconds, "HPEXPIRE": Millis, "HEXPIREAT": TimeSeconds, "HPEXPIREAT": TimeMillis,
	}
	timed = []Kind{Millis, Seconds, TimeMillis, TimeSeconds}
)

// checkUnits reports an argument whose unit, by the header, is not that of the place where it goes.
func (b *body) checkUnits() {
	f := b.flow()
	for _, c := range b.commands {
		names := f.commandNames(c.node)
		if len(names) != 1 {
			continue
		}
		if want, ok := unitPlaces[names[0]]; ok && len(c.args) > 2 {
			b.checkUnit(c.args[2], names[0], want)
		}
		if names[0] != "SET" && names[0] != "GETEX" && names[0] != "HSETEX" && names[0] != "HGETEX" {
			continue
		}
		for i, arg := range c.args[:len(c.args)-1] {
			if s, ok := arg.(*luaast.Str); ok && i > 1 {
				if want, ok := unitWords[strings.ToUpper(s.Value)]; ok {
					b.checkUnit(c.args[i+1], names[0]+" "+strings.ToUpper(s.Value), want)
				}
			}
		}
	}
}

func (b *body) checkUnit(e luaast.Expr, place string, want Kind) {
	for _, arg := range b.argsIn(e, map[*luaast.Var]bool{}) {
		if got := arg.Type; slices.Contains(timed, got.Kind) && got.Kind != want {
			b.at(
				e,
				"U001",
				fmt.Sprintf("%s takes %s, and %s is declared as %s", place, typeName(Type{Kind: want}), arg.Name,
					typeName(got)),
				"declare the unit that the command takes, or take the command for this unit",
			)
			return
		}
	}
}

// keepsUnit are the functions whose result has the unit of their arguments.
var keepsUnit = map[string]bool{"tonumber": true, "tostring": true, "math.floor": true, "math.ceil": true,
	"math.abs": true, "math.max": true, "math.min": true, "string.format": true}

// argsIn are the arguments whose value an expression can have as it is: arithmetic makes another unit.
func (b *body) argsIn(e luaast.Expr, seen map[*luaast.Var]bool) (args []Field) {
	switch e := e.(type) {
	case *luaast.Paren:
		return b.argsIn(e.X, seen)
	case *luaast.Binary:
		if e.Op == "or" || e.Op == "and" {
			args = b.argsIn(e.R, seen)
		}
		if e.Op == "or" {
			args = append(b.argsIn(e.L, seen), args...)
		}
	case *luaast.Call:
		if keepsUnit[builtin(e)] {
			for _, arg := range e.Args {
				args = append(args, b.argsIn(arg, seen)...)
			}
		}
	case *luaast.Index:
		if at, ok := entry(e); ok && !at.key && at.index >= 1 && at.index <= len(b.Args) {
			return []Field{{Name: b.Args[at.index-1].Name, Type: b.Args[at.index-1].Type}}
		}
	case *luaast.Name:
		return b.argsOfVar(e.Var, seen)
	}
	return args
}

func (b *body) argsOfVar(v *luaast.Var, seen map[*luaast.Var]bool) (args []Field) {
	if v == nil || seen[v] || v.Writes > 1 || v.Writes == 1 && (v.Init != nil || v.Func != nil) {
		return nil
	}
	seen[v] = true
	if t, ok := b.argType(v); ok {
		return []Field{{Name: v.Name, Type: t}}
	}
	for _, value := range b.sourcesOf(v) {
		args = append(args, b.argsIn(value, seen)...)
	}
	return args
}

// unitReplies are the units of the replies of commands.
var unitReplies = map[string]Kind{"TTL": Seconds, "PTTL": Millis, "EXPIRETIME": TimeSeconds, "PEXPIRETIME": TimeMillis}

// argType is the declared type of the argument that a local is; ok is false for anything computed.
func (b *body) argType(v *luaast.Var) (Type, bool) {
	init := v.Init
	if c, ok := init.(*luaast.Call); ok && builtin(c) == "tonumber" && len(c.Args) == 1 {
		init = c.Args[0]
	}
	i, ok := init.(*luaast.Index)
	if !ok || !isGlobal(i.Obj, "ARGV") {
		return Type{}, false
	}
	if e, ok := entry(i); ok && e.index >= 1 && e.index <= len(b.Args) {
		return b.Args[e.index-1].Type, true
	}
	if b.Group == nil {
		return Type{}, false
	}
	// The local of a field has the field's name: rules K004 and K008.
	n := slices.IndexFunc(b.Group.Fields, func(f Field) bool { return f.Name == v.Name })
	if n < 0 {
		return Type{}, false
	}
	return b.Group.Fields[n].Type, true
}
