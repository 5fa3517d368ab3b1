package luagen

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// uses is where a script takes the entries of KEYS or ARGV from.
type uses struct {
	most     int          // the highest literal index
	numeric  map[int]bool // the literal indexes that are calculated with
	rest     bool         // there are entries without a literal index
	from     int          // where those begin, 0 where the script does not say
	elements []string     // the names of one of their groups
	handed   bool         // the whole list goes somewhere else
}

// entries finds the fixed entries by their literal indexes, and the rest by loops, ipairs and unpack.
func (d *drafter) entries(isKey bool) drafted {
	word, one := "ARGV", "arg"
	if isKey {
		word, one = "KEYS", "key"
	}
	names, u := map[int]string{}, d.usesOf(word, one)
	for v, e := range d.bound {
		if e.key == isKey && isName(v.Name) && !luaast.IsKeyword(v.Name) {
			if have, ok := names[e.index]; !ok || v.Name < have {
				names[e.index] = v.Name
			}
		}
	}
	fixed := u.most
	if u.from > 0 {
		fixed = u.from - 1
	}
	out, numbers := drafted{}, map[int]string{}
	if !isKey {
		numbers = d.numberTypes(u.numeric)
	}
	for i := 1; i <= fixed; i++ {
		name := names[i]
		if name == "" || slices.Contains(out.names, name) {
			name = fmt.Sprintf("%s%d", one, i)
		}
		typ := ""
		if !isKey {
			typ = cmp.Or(numbers[i], "string")
		}
		out.names, out.types = append(out.names, name), append(out.types, typ)
	}
	if u.rest || u.handed && fixed == 0 {
		out.group = u.elements
	}
	return out
}

func (d *drafter) usesOf(word, one string) uses {
	u := uses{numeric: map[int]bool{}}
	var loop *luaast.NumFor
	offsets := map[int]string{}
	luaast.Inspect(d.Body.Body, func(n, parent luaast.Node) bool {
		name, ok := n.(*luaast.Name)
		if !ok || !isGlobal(name, word) {
			return true
		}
		index, ok := parent.(*luaast.Index)
		if !ok || index.Obj != luaast.Expr(name) {
			d.whole(&u, name, parent)
			return true
		}
		if e, ok := entry(index); ok {
			u.most = max(u.most, e.index)
			u.numeric[e.index] = u.numeric[e.index] || d.isNumber(index)
			return true
		}
		u.rest = true
		if v, offset, ok := indexParts(index.Key); ok && d.loopVars[v] != nil && offset >= 0 {
			loop = d.loopVars[v]
			offsets[offset] = d.localOf(index)
		}
		return true
	})
	if start, ok := loopStart(loop); ok {
		step := stepOf(loop)
		if lowest := slices.Min(slices.Collect(maps.Keys(offsets))); step == 1 {
			start += lowest // for i = 1, n do ARGV[i + 1]: the first one is fixed
			offsets = map[int]string{0: offsets[lowest]}
		}
		u.begins(start)
	}
	u.elements = groupNames(stepOf(loop), offsets, one)
	return u
}

// whole notes a use of KEYS or ARGV itself: ipairs and unpack take the entries from a place on.
func (d *drafter) whole(u *uses, name *luaast.Name, parent luaast.Node) {
	switch p := parent.(type) {
	case *luaast.Unary:
		return
	case *luaast.Local:
		if d.isAlias(p, name) {
			return
		}
	case *luaast.Call:
		if len(p.Args) == 0 || p.Args[0] != luaast.Expr(name) {
			break
		}
		switch builtin(p) {
		case "ipairs":
			u.begins(1)
			return
		case "unpack":
			from := 1
			if len(p.Args) > 1 {
				from, _ = integer(p.Args[1]) // 0: not known
			}
			u.begins(from)
			return
		}
	}
	u.handed = true
}

// begins notes entries without a literal index, and where they begin.
func (u *uses) begins(from int) {
	u.rest = true
	if from > 0 && (u.from == 0 || from < u.from) {
		u.from = from
	}
}

// isNumber reports whether an entry goes through tonumber or is calculated with, itself or behind an or.
func (d *drafter) isNumber(i *luaast.Index) bool {
	node := d.parents[i]
	if b, ok := node.(*luaast.Binary); ok && b.Op == "or" {
		node = d.parents[b]
	}
	switch n := node.(type) {
	case *luaast.Call:
		return builtin(n) == "tonumber"
	case *luaast.Binary:
		return strings.Contains("+-*/%^", n.Op)
	case *luaast.Unary:
		return n.Op == "-"
	}
	return false
}

// localOf is the local that an element is bound to, "" for none.
func (d *drafter) localOf(i *luaast.Index) string {
	local, ok := d.parents[i].(*luaast.Local)
	if !ok {
		return ""
	}
	for k, e := range local.Exprs {
		if e == luaast.Expr(i) && k < len(local.Vars) {
			return local.Vars[k].Name
		}
	}
	return ""
}

func loopStart(loop *luaast.NumFor) (int, bool) {
	if loop == nil {
		return 0, false
	}
	return integer(loop.Start)
}

// stepOf is the step of a loop, 1 where it is not known.
func stepOf(loop *luaast.NumFor) int {
	if loop != nil && loop.Step != nil {
		if n, ok := integer(loop.Step); ok && n > 0 && n < 100 {
			return n
		}
	}
	return 1
}

func groupNames(step int, offsets map[int]string, one string) []string {
	var names []string
	for i := range step {
		name := offsets[i]
		if !isName(name) || slices.Contains(names, name) {
			name = fmt.Sprintf("%s_%c", one, 'a'+i%26)
		}
		names = append(names, name)
	}
	return names
}
