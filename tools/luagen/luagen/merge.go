package luagen

import (
	"fmt"
	"slices"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

const mergeUse = "---@merge max=64"

// mostRows is how many rows a script may take: each one lengthens the call for all.
const mostRows = 1000

// merge reads how many rows one call of a script for many takes.
func (h *headerParser) merge(s *scanner) {
	pos := s.pos()
	h.once("merge", pos)
	opts := h.options(s, "max")
	switch {
	case !s.done():
		h.fail(s.pos(), len(s.word()), "H003", "@merge takes max=N and nothing else", mergeUse)
	case opts["max"] == nil || *opts["max"] < 1 || *opts["max"] > mostRows:
		h.fail(pos, 1, "H007", "@merge without a max from 1 to 1000", "bound the rows of one call: "+mergeUse)
	default:
		h.Merge, h.MergePos = int(*opts["max"]), pos
	}
}

// checkMerge checks what the rows of different callers in one command need.
func (h *headerParser) checkMerge() {
	if h.Merge == 0 {
		return
	}
	fail := func(message, cure string) { h.fail(h.MergePos, len("max"), "M001", message, cure) }
	if len(h.Keys) == 0 {
		fail("@merge without a @key", "a row is counted by its keys, and they choose its node: declare one")
	}
	if h.Group != nil || slices.ContainsFunc(h.Keys, func(k Key) bool { return k.Variadic }) {
		fail("@merge beside @keys or @args",
			"declare the keys and arguments of one row with @key and @arg; KEYS and ARGV repeat them")
	}
	if r := h.Reply; r != nil && (r.Kind == Array || r.Kind == Tuple && r.Optional) {
		fail("the reply of a row has no fixed number of values",
			"declare a value or (field type, ...) with as many values in each row")
	}
}

// checkRowsOfMany reports a script for many that has no way to the keys of a row behind the first: the other callers
// would be told that theirs is done.
func (b *body) checkRowsOfMany() {
	if b.Merge == 0 {
		return
	}
	reached := false
	luaast.Inspect(b.Body.Body, func(n, parent luaast.Node) bool {
		if e, ok := n.(luaast.Expr); ok && isGlobal(e, "KEYS") {
			_, isLength := parent.(*luaast.Unary)
			whole, _ := parent.(luaast.Expr)
			_, literal := entry(whole)
			reached = reached || !isLength && !literal
		}
		return !reached
	})
	if !reached {
		*b.found = append(*b.found, Diagnostic{b.File, b.MergePos, len("max"), "M001",
			"@merge, and the script reads the keys of the first row alone",
			fmt.Sprintf("go through all rows: for i = 1, #KEYS, %d do", b.stride(true))})
	}
	b.checkRowsOnce()
}

// checkRowsOnce reports a script for many that may not run twice, and may refuse one row after it has written another.
// Where nothing is written yet each row is sent again by itself, after that none is.
func (b *body) checkRowsOnce() {
	if b.repeats() {
		return
	}
	first := firstEffect(b.Script)
	writesInRow, refusesLate := false, false
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		writesInRow = writesInRow || first.visitsRows(n) && first.repeats(n)
		call, ok := n.(*luaast.Call)
		refusesLate = refusesLate || ok && first.node != nil && b.redisName(call.Fn) == "error_reply" &&
			n.Extent().Start.Off > first.node.Extent().Start.Off
		return true
	})
	if writesInRow || refusesLate {
		*b.found = append(*b.found, Diagnostic{b.File, b.MergePos, len("max"), "M001",
			"@merge without @retry safe, and a row may fail when another one has written",
			"look at all rows first and then write, in a loop of its own; or make it safe to repeat: @retry safe"})
	}
}

// inBody is the script as its body sees it: the keys and arguments of a script for many are those of any number of
// rows, and its reply has the values of all rows.
func (s *Script) inBody() *Script {
	if s.Merge == 0 || s.partial {
		return s
	}
	b := *s
	keys := make([]Key, len(s.Keys))
	for i, k := range s.Keys {
		k.Variadic, k.Template = true, ""
		keys[i] = k
	}
	if b.Keys = keys; len(keys) > 1 {
		b.Keys = []Key{{Name: "row", Fields: keys, Variadic: true, Pos: keys[0].Pos}}
	}
	b.Keys[0].Max = s.Merge
	if len(s.Args) > 0 {
		group := Group{Name: "row", Tuple: len(s.Args) > 1, Max: s.Merge, Pos: s.Args[0].Pos}
		for _, a := range s.Args {
			group.Fields = append(group.Fields, Field{a.Name, a.Type, a.Pos})
		}
		b.Args, b.Group = nil, &group
	}
	if s.Reply != nil {
		b.Reply = &Type{Kind: Array, Elem: s.Reply, Pos: s.Reply.Pos, Width: s.Reply.Width}
	}
	return &b
}

// width is how many values the reply of a row has.
func (s *Script) width() int {
	switch {
	case s.Reply == nil:
		return 0
	case s.Reply.Kind == Tuple:
		return len(s.Reply.Fields)
	}
	return 1
}
