package luaast

// itemsAtOnce are the values of a constructor that wait until the table gets them together.
const itemsAtOnce = 50

// hold keeps the next registers of the function for values that wait. What the parser counts is what Lua 5.1 needs or
// less: a value whose place depends on more than its form is not counted.
func (p *parser) hold(n int) {
	if p.scope.held += n; len(p.scope.active)+p.scope.held > maxRegisters {
		p.fail(p.last.Start, p.last.Width(),
			"expression too complex: its values and the %d local variables around need more than %d registers: "+
				"make it of parts, or a list of many values a table", len(p.scope.active), maxRegisters)
	}
}

// holdTarget holds what an assignment needs to reach an element.
func (p *parser) holdTarget(e Expr) {
	if i, ok := e.(*Index); ok {
		p.hold(registers(i.Obj) + registers(i.Key))
	}
}

// holdLeft holds the left side while the right one is read. `and` and `or` are done with it.
func (p *parser) holdLeft(op string, left Expr) {
	switch op {
	case "and", "or":
	case "..":
		p.hold(1)
	default:
		p.hold(registers(left))
	}
}

// registers is 1 for a value that needs one to wait in, 0 for a literal, for a local, which has its own, and for what
// may come to be one of them.
func registers(e Expr) int {
	switch e := e.(type) {
	case *Paren:
		return registers(e.X)
	case *Name:
		if e.Var == nil {
			return 1
		}
	case *Call, *Index:
		return 1
	case *Binary:
		if e.Op != "and" && e.Op != "or" && (isRead(e.L) || isRead(e.R)) {
			return 1
		}
	}
	return 0
}

// isRead tells what the script reads from what it says.
func isRead(e Expr) bool {
	switch e.(type) {
	case *Name, *Call, *Index:
		return true
	}
	return false
}

// constant counts a literal of a list: one instruction loads it. Numbers of an arithmetic are none, as Lua computes
// some of them when it reads the script.
func (p *parser) constant(e Expr) {
	var value any
	switch e := e.(type) {
	case *Str:
		value = e.Value
	case *Number:
		value = e.Value
	default:
		return
	}
	p.scope.code++
	if len(p.src) <= maxConstants {
		return // each is a byte at the least
	}
	if p.scope.constants == nil {
		p.scope.constants = map[any]bool{}
	}
	if p.scope.constants[value] = true; len(p.scope.constants) > maxConstants {
		p.fail(e.Extent().Start, e.Extent().Width(), "more than %d constants in one function", maxConstants)
	}
}

// leapt reads a block over which a jump leads.
func (p *parser) leapt() []Stmt {
	start, code := p.tok.Start, p.scope.code
	body := p.block()
	p.leap(start, code)
	return body
}

func (p *parser) leap(start Pos, code int) {
	if p.scope.code-code > maxJump {
		p.fail(start, 1, "control structure too long: a jump leads over %d instructions at most", maxJump)
	}
}
