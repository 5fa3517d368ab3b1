package luagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// step is a condition on the way to a place of the script.
type step struct {
	line int
	text string
}

// way describes how the script comes to a node: the conditions around it, and those before it that were not taken as a
// way out.
func (b *body) way(n luaast.Node) string {
	var steps []step
	add := func(cond luaast.Expr, holds bool) {
		text := b.short(cond)
		if not, ok := cond.(*luaast.Unary); ok && not.Op == "not" && !holds {
			text = b.short(not.X)
		} else if !holds {
			text = "not (" + text + ")"
		}
		steps = append(steps, step{cond.Extent().Start.Line, text})
	}
	for at := n; at != nil; at = b.parents[at] {
		for _, cond := range b.exitsBefore(at) {
			add(cond, false)
		}
		switch p := b.parents[at].(type) {
		case *luaast.If:
			b.clauseWay(p, at, add)
		case *luaast.While:
			if luaast.Node(p.Cond) != at {
				add(p.Cond, true)
			}
		}
	}
	if len(steps) == 0 {
		return "on every path"
	}
	slices.SortStableFunc(steps, func(a, b step) int { return a.line - b.line })
	texts := make([]string, len(steps))
	for i, s := range steps {
		texts[i] = fmt.Sprintf("line %d %s", s.line, s.text)
	}
	const most = 4
	if over := len(texts) - most; over > 0 {
		texts = append([]string{"..."}, texts[over:]...)
	}
	return "on the path " + strings.Join(texts, ", ")
}

// clauseWay adds the conditions that lead to the clause of an if that holds the node.
func (b *body) clauseWay(p *luaast.If, at luaast.Node, add func(cond luaast.Expr, holds bool)) {
	s, ok := at.(luaast.Stmt)
	if !ok {
		return
	}
	for _, c := range p.Clauses {
		inside := slices.Contains(c.Body, s)
		if c.Cond != nil {
			add(c.Cond, inside)
		}
		if inside {
			return
		}
	}
}

// short is the source of an expression on one line of at most 40 bytes.
func (b *body) short(e luaast.Expr) string {
	span := e.Extent()
	text := strings.Join(strings.Fields(b.Source[span.Start.Off:span.End]), " ")
	if len(text) > 40 {
		text = strings.ToValidUTF8(text[:37], "") + "..."
	}
	return text
}

// exitsBefore lists the conditions of statements before this one, in the same block, that can leave it.
func (b *body) exitsBefore(at luaast.Node) []luaast.Expr {
	s, ok := at.(luaast.Stmt)
	if !ok {
		return nil
	}
	var conds []luaast.Expr
	place := b.placeOf(s)
	if place.block == nil {
		return nil
	}
	for _, e := range place.block.exits {
		if e.index < place.index {
			conds = append(conds, e.cond)
		}
	}
	return conds
}

// leaves reports that a list of statements can end the block around it.
func leaves(body []luaast.Stmt) bool {
	found := false
	luaast.Inspect(body, func(n, _ luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Return, *luaast.Break:
			found = true
		case *luaast.Call:
			found = found || isGlobal(n.Fn, "error")
		case *luaast.Func:
			return false
		}
		return !found
	})
	return found
}

// block is a list of statements, with the conditions by which it can be left.
type block struct {
	stmts []luaast.Stmt
	exits []exit
}

type exit struct {
	index int
	cond  luaast.Expr
}

// stmtPlace is where a statement stands.
type stmtPlace struct {
	block *block
	index int
}

func (b *body) placeOf(s luaast.Stmt) stmtPlace {
	if b.places == nil {
		b.places = map[luaast.Stmt]stmtPlace{}
		b.addBlock(b.Body.Body)
		luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
			b.addBlocks(n)
			return true
		})
	}
	return b.places[s]
}

func (b *body) addBlocks(n luaast.Node) {
	switch n := n.(type) {
	case *luaast.Func:
		b.addBlock(n.Body)
	case *luaast.Do:
		b.addBlock(n.Body)
	case *luaast.While:
		b.addBlock(n.Body)
	case *luaast.Repeat:
		b.addBlock(n.Body)
	case *luaast.NumFor:
		b.addBlock(n.Body)
	case *luaast.GenFor:
		b.addBlock(n.Body)
	case *luaast.If:
		for _, c := range n.Clauses {
			b.addBlock(c.Body)
		}
	}
}

func (b *body) addBlock(stmts []luaast.Stmt) {
	list := &block{stmts: stmts}
	for i, s := range stmts {
		b.places[s] = stmtPlace{list, i}
		cond, ok := s.(*luaast.If)
		if !ok {
			continue
		}
		for _, c := range cond.Clauses {
			if c.Cond != nil && leaves(c.Body) {
				list.exits = append(list.exits, exit{i, c.Cond})
			}
		}
	}
}
