package luagen

import (
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// spot is what a command reads or writes: a field of a hash, else a key.
type spot struct {
	key   any
	field field
}

// field is what the source tells of the name of a field; the zero field is one that it does not tell, or the whole key.
type field struct {
	text  string
	start string // the literal that the name begins with
	whole bool   // the name is that literal
}

// fieldPlaces says of a command which argument is its first field, and how far behind it the next one stands.
var fieldPlaces = map[string][2]int{
	"HGET": {2, one}, "HEXISTS": {2, one}, "HSTRLEN": {2, one}, "HSETNX": {2, one}, "HINCRBY": {2, one},
	"HINCRBYFLOAT": {2, one}, "HMGET": {2, 1}, "HDEL": {2, 1}, "HSET": {2, 2}, "HMSET": {2, 2},
}

// spots lists what a command reads or writes.
func (f flow) spots(c redisCall) []spot {
	var list []spot
	for _, id := range f.keyIDs(c) {
		for _, field := range f.fields(c) {
			list = append(list, spot{id, field})
		}
	}
	return list
}

func (f flow) fields(c redisCall) []field {
	names := f.commandNames(c.node)
	if len(names) != 1 || f.isMulti(c.args[len(c.args)-1]) {
		return []field{{}}
	}
	place, ok := fieldPlaces[names[0]]
	if !ok || place[0] >= len(c.args) {
		return []field{{}}
	}
	var list []field
	for at := place[0]; at < len(c.args); at += place[1] {
		list = append(list, f.fieldOf(c.args[at]))
	}
	return list
}

func (f flow) fieldOf(e luaast.Expr) field {
	name := field{text: f.text(e)}
	first := e
	if joined, ok := e.(*luaast.Binary); ok && joined.Op == ".." {
		first = joined.L
	}
	if s, ok := first.(*luaast.Str); ok {
		name.start, name.whole = s.Value, first == e
	}
	return name
}

// canBe reports whether two names can be that of one field.
func (a field) canBe(b field) bool {
	switch {
	case a.whole && b.whole:
		return a.start == b.start
	case a.whole:
		return strings.HasPrefix(a.start, b.start)
	case b.whole:
		return strings.HasPrefix(b.start, a.start)
	}
	return strings.HasPrefix(a.start, b.start) || strings.HasPrefix(b.start, a.start)
}

// shows reports that the script writes what is read. In an order, what the command itself grows is no guard: the repeat
// finds it a step further.
func (r repeats) shows(read spot, ordered bool) bool {
	unknown := any(everyKey{})
	return read.key == unknown || slices.ContainsFunc(r.changed, func(w spot) bool {
		return (w.key == read.key || w.key == unknown) && w.field.canBe(read.field) &&
			!(ordered && slices.ContainsFunc(r.grown, func(g spot) bool {
				return g.key == read.key && (g.field == w.field || w.field == field{} || w.key == unknown)
			}))
	})
}
