package luagen

import (
	"fmt"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// errField returns the err of a table {err = ...}.
func errField(e luaast.Expr) (luaast.Expr, bool) {
	table, ok := e.(*luaast.Table)
	if !ok {
		return nil, false
	}
	for _, item := range table.Items {
		if key, ok := item.Key.(*luaast.Str); ok && key.Value == "err" {
			return item.Value, true
		}
	}
	return nil, false
}

// checkErrors compares the codes the script can return with those it declares.
func (b *body) checkErrors() {
	returned := map[string]bool{}
	luaast.Inspect(b.Body.Body, func(n, parent luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Call:
			b.checkRaise(n)
			if b.redisName(n.Fn) == "error_reply" && len(n.Args) > 0 {
				b.checkCode(n, n.Args[0], returned)
				b.checkDropped(n, parent)
			}
		case *luaast.Table:
			if text, ok := errField(n); ok && !isRaise(parent) {
				b.checkCode(n, text, returned)
			}
		}
		return true
	})
	for _, c := range b.Errors {
		if !returned[c.Name] {
			b.header(
				c.Pos,
				len(c.Name),
				"E003",
				c.Name+" is declared and never returned",
				fmt.Sprintf("return redis.error_reply('%s ...'), or remove the declaration", c.Name),
			)
		}
	}
}

func isRaise(n luaast.Node) bool {
	c, ok := n.(*luaast.Call)
	return ok && isGlobal(c.Fn, "error")
}

func (b *body) checkDropped(n *luaast.Call, parent luaast.Node) {
	if _, ok := parent.(*luaast.CallStmt); ok {
		b.at(n, "R006", "redis.error_reply makes a value, it does not stop the script", "return redis.error_reply(...)")
	}
}

// checkRaise reports error('CODE text'): raised errors come back with a script position added, like faults of the
// script itself.
func (b *body) checkRaise(n *luaast.Call) {
	if !isRaise(n) || len(n.Args) == 0 {
		return
	}
	if b.bare {
		return
	}
	arg := n.Args[0]
	if inner, ok := errField(arg); ok {
		arg = inner
	}
	codes, _ := b.codeTexts(arg)
	for _, code := range codes {
		if word, _, _ := strings.Cut(code, " "); isCode(word) {
			b.at(
				n,
				"E003",
				word+" is raised, not returned",
				fmt.Sprintf("write return redis.error_reply('%s ...'): callers cannot match a raised error", word),
			)
		}
	}
}

func (b *body) checkCode(at luaast.Node, arg luaast.Expr, returned map[string]bool) {
	codes, ok := b.codeTexts(arg)
	switch {
	case !ok && b.isPcallError(arg) && b.bare:
		return
	case !ok && b.isPcallError(arg):
		b.at(
			at,
			"E003",
			"the error of redis.pcall is passed on as a returned error",
			"raise it, error({err = ...}), so that callers see it as a failure inside the script",
		)
		return
	case !ok:
		codes = []string{""}
	}
	for _, code := range codes {
		word, rest, _ := strings.Cut(code, " ")
		switch {
		case !isCode(word) || rest == "":
			b.at(
				at,
				"E001",
				"an error without CODE and text",
				"write redis.error_reply('CODE what happened') and declare ---@error CODE",
			)
		case slices.Contains(reservedCodes, word):
			b.at(
				at,
				"E002",
				word+" is a code of Redis itself",
				"clients act on it, some by sending the script again; choose another word",
			)
		case !b.bare && !slices.ContainsFunc(b.Errors, func(c Code) bool { return c.Name == word }):
			b.at(at, "E003", word+" is not declared", "add ---@error "+word+"  what it means")
		}
		returned[word] = true
	}
}

// codeTexts returns the literal beginnings that an error's text can have.
func (b *body) codeTexts(e luaast.Expr) ([]string, bool) {
	switch e := e.(type) {
	case *luaast.Binary:
		if e.Op == ".." {
			left, ok := b.codeTexts(e.L)
			for i, text := range left {
				if strings.HasSuffix(text, " ") {
					left[i] += "..." // what follows is the text
				}
			}
			return left, ok
		}
	case *luaast.Call:
		if builtin(e) == "string.format" && len(e.Args) > 0 {
			return b.codeTexts(e.Args[0])
		}
	}
	words, ok := b.words(e)
	return words, ok && len(words) > 0
}

func (b *body) isPcallError(e luaast.Expr) bool {
	i, ok := e.(*luaast.Index)
	if !ok {
		return false
	}
	v := localVar(i.Obj)
	if v == nil || v.Init == nil {
		return false
	}
	c, ok := v.Init.(*luaast.Call)
	return ok && b.redisName(c.Fn) == "pcall"
}

// checkPcalls wants every protected call to be looked at.
func (b *body) checkPcalls() {
	for _, c := range b.commands {
		if !c.protected || b.looksAtResult(c.node) {
			continue
		}
		b.at(
			c.node,
			"W002",
			"the result of pcall is not checked",
			"test type(result) == 'table' and result.err (with redis.pcall) or the first value (with pcall), or use "+
				"redis.call",
		)
	}
}

func (b *body) looksAtResult(c *luaast.Call) bool {
	switch p := b.parents[c].(type) {
	case *luaast.CallStmt:
		return false
	case *luaast.Local:
		v := b.receiver(p, c)
		return v == nil || b.isTested(v)
	}
	return true
}

func (b *body) receiver(p *luaast.Local, c *luaast.Call) *luaast.Var {
	for i, e := range p.Exprs {
		if e == luaast.Expr(c) && i < len(p.Vars) {
			return p.Vars[i]
		}
	}
	return nil
}

// isTested looks for v.err, type(v), a test of v itself and uses that hand v on.
func (b *body) isTested(v *luaast.Var) bool {
	return slices.ContainsFunc(b.names[v], func(use *luaast.Name) bool {
		switch p := b.parents[use].(type) {
		case *luaast.Index:
			key, isText := p.Key.(*luaast.Str)
			return isText && key.Value == "err"
		case *luaast.Call:
			return builtin(p) == "type" || b.localFunc(p) != nil
		case *luaast.If, *luaast.While, *luaast.Repeat, *luaast.Unary, *luaast.Return:
			return true
		case *luaast.Binary:
			_, left := p.L.(*luaast.Const)
			_, right := p.R.(*luaast.Const)
			return p.Op == "and" || p.Op == "or" || left || right
		}
		return false
	})
}
