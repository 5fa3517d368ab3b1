package luaast

import (
	"fmt"
	"strings"
)

// Parse reads a file. The error, if any, is an *Error with the place.
func Parse(src string) (chunk *Chunk, err error) {
	p := &parser{lexer: newLexer(src), chunk: &Chunk{}}
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			chunk, err = nil, e
		}
	}()
	if strings.HasPrefix(src, "#!") {
		p.fail(p.pos, 2, shebang)
	}
	p.ahead = p.lexer.next()
	p.step()
	p.openFunc(true)
	p.chunk.Body = p.block()
	if p.tok.kind != tokEOF {
		p.unexpected("the end of the file")
	}
	p.chunk.End, p.chunk.Lines = p.tok.Start, p.lines
	return p.chunk, nil
}

type parser struct {
	*lexer
	tok, ahead token
	last       Span // of the token before tok
	scope      *scope
	chunk      *Chunk
	depth      int
}

func (p *parser) step() {
	p.last, p.tok = p.tok.Span, p.ahead
	if p.tok.kind != tokEOF {
		p.ahead = p.lexer.next()
	}
}

// is reports whether the token is the keyword or symbol.
func (p *parser) is(text string) bool {
	return (p.tok.kind == tokKeyword || p.tok.kind == tokSymbol) && p.tok.text == text
}

func (p *parser) accept(text string) bool {
	if p.is(text) {
		p.step()
		return true
	}
	return false
}

func (p *parser) expect(text string) {
	if !p.accept(text) {
		p.unexpected("'" + text + "'")
	}
}

// closing expects the end of a construct, and names its start when that is on another line.
func (p *parser) closing(text, opener string, start Pos) {
	if p.is(text) || start.Line == p.tok.Start.Line {
		p.expect(text)
		return
	}
	p.unexpected(fmt.Sprintf("'%s' to close '%s' of line %d", text, opener, start.Line))
}

func (p *parser) unexpected(want string) {
	got := "'" + p.tok.text + "'"
	switch p.tok.kind {
	case tokEOF:
		got = "the end of the file"
	case tokString:
		got = "a string"
	}
	p.fail(p.tok.Start, p.tok.Width(), "expected %s, found %s", want, got)
}

// enter counts nesting, as Lua does on its C stack.
func (p *parser) enter() {
	if p.depth++; p.depth > maxLevels {
		p.fail(p.tok.Start, p.tok.Width(), "chunk has too many syntax levels")
	}
}

func (p *parser) leave() { p.depth-- }

func (p *parser) from(start Pos) Span { return Span{start, p.last.End} }

func (p *parser) name() (string, Span) {
	if p.tok.kind != tokName {
		p.unexpected("a name")
	}
	text := p.tok.text
	p.step()
	return text, p.last
}

// block reads statements until a word that ends one. Only the last may be return or break.
func (p *parser) block() []Stmt {
	p.enter()
	defer p.leave()
	mark := p.mark()
	body := p.statements()
	p.release(mark)
	return body
}

func (p *parser) statements() []Stmt {
	var body []Stmt
	for !p.blockEnd() {
		s := p.statement()
		p.scope.held = 0
		body = append(body, s)
		p.accept(";")
		switch s.(type) {
		case *Return, *Break:
			return body
		}
	}
	return body
}

func (p *parser) blockEnd() bool {
	return p.tok.kind == tokEOF || p.is("end") || p.is("else") || p.is("elseif") || p.is("until")
}

func (p *parser) statement() Stmt {
	start := p.tok.Start
	switch {
	case p.accept("if"):
		return p.ifStmt(start)
	case p.accept("while"):
		cond := p.expr()
		p.expect("do")
		body := p.loop()
		p.closing("end", "while", start)
		return &While{p.from(start), cond, body}
	case p.accept("do"):
		body := p.block()
		p.closing("end", "do", start)
		return &Do{p.from(start), body}
	case p.accept("for"):
		return p.forStmt(start)
	case p.accept("repeat"):
		return p.repeat(start)
	case p.accept("function"):
		return p.funcStmt(start)
	case p.accept("local"):
		if p.accept("function") {
			return p.localFunc(start)
		}
		return p.local(start)
	case p.accept("return"):
		return p.returnStmt(start)
	case p.accept("break"):
		if p.scope.loops == 0 {
			p.fail(start, 5, "no loop to break")
		}
		return &Break{p.from(start)}
	}
	return p.exprStmt()
}

func (p *parser) loop() []Stmt {
	p.scope.loops++
	body := p.leapt()
	p.scope.loops--
	return body
}

func (p *parser) ifStmt(start Pos) Stmt {
	s := &If{}
	for {
		cond := p.expr()
		p.expect("then")
		s.Clauses = append(s.Clauses, Clause{cond, p.leapt()})
		if p.accept("elseif") {
			continue
		}
		if p.accept("else") {
			s.Clauses = append(s.Clauses, Clause{nil, p.block()})
		}
		p.closing("end", "if", start)
		s.Span = p.from(start)
		return s
	}
}

// repeat keeps the block's locals visible in the condition.
func (p *parser) repeat(start Pos) Stmt {
	p.enter()
	mark, code := p.mark(), p.scope.code
	p.scope.loops++
	body := p.statements()
	p.scope.loops--
	p.leap(start, code)
	p.closing("until", "repeat", start)
	p.leave()
	cond := p.expr()
	p.release(mark)
	return &Repeat{p.from(start), body, cond}
}

func (p *parser) forStmt(start Pos) (s Stmt) {
	mark := p.mark()
	name, at := p.name()
	v := &Var{Span: at, Name: name}
	switch {
	case p.accept("="):
		s = p.numFor(start, v)
	case p.is(",") || p.is("in"):
		s = p.genFor(start, v)
	default:
		p.unexpected("'=' or 'in'")
	}
	p.release(mark) // not deferred: where an error ends the parse, the scope is that of another function
	return s
}

func (p *parser) numFor(start Pos, v *Var) Stmt {
	s := &NumFor{Var: v, Start: p.expr()}
	p.expect(",")
	s.Limit = p.expr()
	if p.accept(",") {
		s.Step = p.expr()
	}
	p.hidden(v.Span)
	s.Body = p.forBody(start, v)
	s.Span = p.from(start)
	return s
}

func (p *parser) genFor(start Pos, first *Var) Stmt {
	s := &GenFor{Vars: []*Var{first}}
	for p.accept(",") {
		name, at := p.name()
		s.Vars = append(s.Vars, &Var{Span: at, Name: name})
	}
	p.expect("in")
	s.Exprs = p.exprs()
	p.hidden(first.Span)
	s.Body = p.forBody(start, s.Vars...)
	s.Span = p.from(start)
	return s
}

func (p *parser) forBody(start Pos, vars ...*Var) []Stmt {
	p.expect("do")
	p.scope.held = 0
	for _, v := range vars {
		p.declare(v)
	}
	body := p.loop()
	p.closing("end", "for", start)
	return body
}

func (p *parser) local(start Pos) Stmt {
	s := &Local{}
	for {
		name, at := p.name()
		s.Vars = append(s.Vars, &Var{Span: at, Name: name})
		if !p.accept(",") {
			break
		}
	}
	if p.accept("=") {
		s.Exprs = p.exprs()
		p.hold(1)
	}
	for i, v := range s.Vars {
		if i < len(s.Exprs) {
			v.Init = s.Exprs[i]
		}
		p.declare(v)
	}
	s.Span = p.from(start)
	return s
}

func (p *parser) localFunc(start Pos) Stmt {
	name, at := p.name()
	v := &Var{Span: at, Name: name}
	p.declare(v)
	f := p.funcBody(start, false)
	v.Init = f
	return &LocalFunc{p.from(start), v, f}
}

func (p *parser) returnStmt(start Pos) Stmt {
	s := &Return{}
	if !p.blockEnd() && !p.is(";") {
		s.Exprs = p.exprs()
		if len(s.Exprs) > 1 {
			p.hold(1)
		}
	}
	s.Span = p.from(start)
	return s
}
