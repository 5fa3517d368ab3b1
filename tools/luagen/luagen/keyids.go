package luagen

import (
	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// everyKey stands for a key that cannot be told.
type everyKey struct{}

// keyArg is an argument of a command that is a key.
type keyArg struct {
	at   int
	spec keySpec
}

// keyArgs lists the key arguments of a command whose name is one literal.
func (f flow) keyArgs(c redisCall) []keyArg {
	names := f.commandNames(c.node)
	if len(names) == 0 {
		return nil
	}
	cmd, ok := lookup(names[0])
	if !ok {
		return nil
	}
	var list []keyArg
	for _, spec := range cmd.keys {
		at, _ := c.keysAt(spec)
		for _, i := range at {
			if i < len(c.args) {
				list = append(list, keyArg{i, spec})
			}
		}
	}
	return list
}

// keyIDs are the keys of a command, each by its line of the header; everyKey where that cannot be told.
func (f flow) keyIDs(c redisCall) []any {
	var ids []any
	for _, a := range f.keyArgs(c) {
		o := f.tracer(nil).argOrigin(c.args[a.at], a.at == len(c.args)-1, a.spec)
		if o.bad != "" || len(o.keys) == 0 {
			ids = append(ids, everyKey{})
		}
		for _, k := range o.keys {
			ids = append(ids, k)
		}
	}
	return ids
}

// keysOf tells keys apart on one path: by the line of the header, else by the local that holds the key, else by its
// text.
func (f flow) keysOf(e luaast.Expr, env map[*luaast.Var]luaast.Expr) []any {
	for {
		v := localVar(e)
		arg, ok := env[v]
		if v == nil || !ok {
			break
		}
		e = arg
	}
	if o := f.tracer(env).key(e); o.bad == "" && len(o.keys) > 0 {
		var ids []any
		for _, k := range o.keys {
			if len(k.Fields) == 0 && k != anyKey {
				ids = append(ids, k)
			}
		}
		if len(ids) == len(o.keys) {
			return ids
		}
	}
	if v := localVar(e); v != nil {
		return []any{v}
	}
	return []any{f.text(e)}
}
