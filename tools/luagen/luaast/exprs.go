package luaast

// funcStmt is `function a.b:c() ... end`.
func (p *parser) funcStmt(start Pos) Stmt {
	target, method := p.variable(), false
	for p.is(".") || p.is(":") {
		method = p.is(":")
		p.step()
		name, at := p.name()
		target = &Index{Span{target.Extent().Start, at.End}, target, &Str{at, name}}
		if method {
			break
		}
	}
	p.assigned(target)
	f := p.funcBody(start, method)
	return &FuncStmt{p.from(start), target, f}
}

// variable reads a name and resolves it.
func (p *parser) variable() Expr {
	name, at := p.name()
	n := &Name{Span: at, Name: name}
	p.resolve(n)
	if n.Var != nil {
		n.Var.Reads++
	} else {
		p.chunk.Globals = append(p.chunk.Globals, Global{Name: n})
	}
	return n
}

// assigned turns the read of a plain name into a write.
func (p *parser) assigned(target Expr) {
	n, ok := target.(*Name)
	switch {
	case !ok:
	case n.Var != nil:
		n.Var.Reads--
		n.Var.Writes++
	default:
		for i := len(p.chunk.Globals) - 1; i >= 0; i-- {
			if p.chunk.Globals[i].Name == n {
				p.chunk.Globals[i].Write = true
				return
			}
		}
	}
}

// exprStmt is a call or an assignment.
func (p *parser) exprStmt() Stmt {
	start := p.tok.Start
	first := p.suffixed()
	if call, ok := first.(*Call); ok && !p.is("=") && !p.is(",") {
		return &CallStmt{p.from(start), call}
	}
	s := &Assign{Targets: []Expr{first}}
	p.holdTarget(first)
	for p.accept(",") {
		target := p.suffixed()
		p.holdTarget(target)
		s.Targets = append(s.Targets, target)
		if len(s.Targets)-1 > maxLevels-p.depth {
			p.fail(start, 1, "too many variables in one assignment")
		}
	}
	if !p.is("=") {
		p.unexpected("'='")
	}
	for _, t := range s.Targets {
		switch t.(type) {
		case *Name, *Index:
		default:
			p.fail(t.Extent().Start, t.Extent().Width(), "cannot assign to this expression")
		}
	}
	p.step()
	s.Exprs = p.exprs()
	if len(s.Exprs) != len(s.Targets) {
		p.hold(1 + max(0, len(s.Targets)-len(s.Exprs)))
	}
	for _, t := range s.Targets {
		p.assigned(t)
	}
	s.Span = p.from(start)
	return s
}

// exprs reads a list. Its values are held but for the last, which some statements put where it belongs.
func (p *parser) exprs() []Expr {
	list := []Expr{p.value()}
	for p.accept(",") {
		p.hold(1)
		list = append(list, p.value())
	}
	return list
}

// value reads an expression of a list.
func (p *parser) value() Expr {
	e := p.expr()
	p.constant(e)
	return e
}

func (p *parser) expr() Expr { return p.binary(0) }

// The binding powers of the operators, left and right; a lower right power makes it right-associative.
var powers = map[string][2]int{
	"or": {1, 1}, "and": {2, 2},
	"<": {3, 3}, ">": {3, 3}, "<=": {3, 3}, ">=": {3, 3}, "~=": {3, 3}, "==": {3, 3},
	"..": {5, 4}, "+": {6, 6}, "-": {6, 6}, "*": {7, 7}, "/": {7, 7}, "%": {7, 7}, "^": {10, 9},
}

const unaryPower = 8

func (p *parser) binary(limit int) Expr {
	p.enter()
	defer p.leave()
	start := p.tok.Start
	var left Expr
	if p.is("not") || p.is("-") || p.is("#") {
		op := p.tok.text
		p.step()
		x := p.binary(unaryPower)
		left = &Unary{p.from(start), op, x}
	} else {
		left = p.simple()
	}
	for {
		power, ok := powers[p.tok.text]
		if !ok || p.tok.kind != tokSymbol && p.tok.kind != tokKeyword || power[0] <= limit {
			return left
		}
		op, held := p.tok.text, p.scope.held
		p.step()
		p.holdLeft(op, left)
		right := p.binary(power[1])
		if op == ".." {
			p.hold(1)
		}
		p.scope.held = held
		left = &Binary{p.from(start), op, left, right}
	}
}

func (p *parser) simple() Expr {
	tok := p.tok
	switch {
	case tok.kind == tokNumber:
		p.step()
		return &Number{tok.Span, tok.num}
	case tok.kind == tokString:
		p.step()
		return &Str{tok.Span, tok.text}
	case p.is("nil") || p.is("true") || p.is("false"):
		p.step()
		return &Const{tok.Span, tok.text}
	case p.is("..."):
		if !p.scope.vararg {
			p.fail(tok.Start, 3, "cannot use '...' outside a vararg function")
		}
		p.step()
		return &Vararg{tok.Span}
	case p.is("{"):
		return p.table()
	case p.accept("function"):
		return p.funcBody(tok.Start, false)
	}
	return p.suffixed()
}

// suffixed is a name or (expr), followed by any number of indexes and calls.
func (p *parser) suffixed() Expr {
	start := p.tok.Start
	e := p.primary()
	for {
		switch {
		case p.accept("."):
			name, at := p.name()
			e = &Index{p.from(start), e, &Str{at, name}}
		case p.accept("["):
			held := p.scope.held
			p.hold(registers(e))
			key := p.expr()
			p.scope.held = held
			p.expect("]")
			e = &Index{p.from(start), e, key}
		case p.accept(":"):
			name, _ := p.name()
			args := p.args(2)
			e = &Call{p.from(start), e, name, args}
		case p.is("(") || p.is("{") || p.tok.kind == tokString:
			args := p.args(1)
			e = &Call{p.from(start), e, "", args}
		default:
			return e
		}
	}
}

func (p *parser) primary() Expr {
	start := p.tok.Start
	if p.accept("(") {
		x := p.expr()
		p.closing(")", "(", start)
		return &Paren{p.from(start), x}
	}
	if p.tok.kind != tokName {
		p.unexpected("an expression")
	}
	return p.variable()
}

// args reads the arguments of a call, behind the function and, of a method, its object.
func (p *parser) args(before int) []Expr {
	start, held := p.tok.Start, p.scope.held
	defer func() { p.scope.held = held }()
	p.hold(before)
	p.scope.code += 2
	switch {
	case p.tok.kind == tokString:
		s := &Str{p.tok.Span, p.tok.text}
		p.step()
		return []Expr{s}
	case p.is("{"):
		return []Expr{p.table()}
	case !p.is("("):
		p.unexpected("arguments")
	}
	if p.tok.Start.Line != p.lineOfLast() {
		p.fail(start, 1, "ambiguous syntax (function call x new statement)")
	}
	p.step()
	if p.accept(")") {
		return nil
	}
	list := p.exprs()
	p.hold(1)
	p.closing(")", "(", start)
	return list
}

// lineOfLast is the line on which the last token ended; only long strings span lines.
func (p *parser) lineOfLast() int {
	line := p.last.Start.Line
	text := p.src[p.last.Start.Off:p.last.End]
	for i := 0; i < len(text); i++ {
		if isNewline(text[i]) {
			line++
			if i+1 < len(text) && isNewline(text[i+1]) && text[i+1] != text[i] {
				i++
			}
		}
	}
	return line
}

func (p *parser) table() Expr {
	start, held := p.tok.Start, p.scope.held
	p.expect("{")
	t := &Table{}
	p.hold(1)
	for waiting := 0; !p.is("}"); {
		item := p.item()
		t.Items = append(t.Items, item)
		if item.Key == nil {
			p.hold(1)
			waiting++
		}
		if waiting == itemsAtOnce {
			p.scope.held -= waiting
			waiting = 0
		}
		if !p.accept(",") && !p.accept(";") {
			break
		}
	}
	p.scope.held = held
	p.closing("}", "{", start)
	t.Span = p.from(start)
	return t
}

func (p *parser) item() Item {
	switch {
	case p.tok.kind == tokName && p.ahead.kind == tokSymbol && p.ahead.text == "=":
		name, at := p.name()
		p.step()
		return Item{&Str{at, name}, p.value()}
	case p.accept("["):
		key := p.expr()
		p.expect("]")
		p.expect("=")
		p.constant(key)
		held := p.scope.held
		p.hold(registers(key))
		value := p.value()
		p.scope.held = held
		return Item{key, value}
	}
	return Item{nil, p.value()}
}

func (p *parser) funcBody(start Pos, method bool) *Func {
	f := &Func{}
	scope := p.openFunc(false)
	if method {
		p.declare(&Var{Span: p.last, Name: "self"})
	}
	p.expect("(")
	p.params(f, scope)
	p.expect(")")
	f.Body = p.block()
	p.closing("end", "function", start)
	p.closeFunc()
	f.Span = p.from(start)
	return f
}

func (p *parser) params(f *Func, scope *scope) {
	if p.is(")") {
		return
	}
	for {
		if p.accept("...") {
			f.Vararg, scope.vararg = true, true
			// Redis builds Lua with the old table of extra arguments.
			p.declare(&Var{Span: p.last, Name: "arg", Vararg: true})
			return
		}
		name, at := p.name()
		v := &Var{Span: at, Name: name, Func: f, Index: len(f.Params)}
		f.Params = append(f.Params, v)
		p.declare(v)
		if !p.accept(",") {
			return
		}
	}
}
