package luaast

// Limits of Lua 5.1 as Redis builds it.
const (
	maxLocals   = 200 // active in one function
	maxUpvalues = 60  // of one function
	maxLevels   = 200 // nested blocks and expressions, the file itself being the first
	// of one function: its locals, and the values that wait while an expression is read
	maxRegisters = 249
	maxConstants = 1<<18 - 1 // of one function
	maxJump      = 1<<17 - 1 // instructions over which a loop or an if leads
)

// scope is one function being parsed.
type scope struct {
	outer     *scope
	vararg    bool
	active    []*Var // visible locals; hidden loop variables count and have no name
	upvalues  map[*Var]bool
	loops     int
	held      int          // registers of values that wait
	constants map[any]bool // no more of them than of the lists it has
	code      int          // no more instructions than it has
}

func (p *parser) openFunc(vararg bool) *scope {
	p.scope = &scope{outer: p.scope, vararg: vararg, upvalues: map[*Var]bool{}}
	return p.scope
}

func (p *parser) closeFunc() { p.scope = p.scope.outer }

// declare makes v visible.
func (p *parser) declare(v *Var) {
	if len(p.scope.active) >= maxLocals {
		p.fail(v.Start, v.Width(), "more than %d local variables in one function", maxLocals)
	}
	p.scope.active = append(p.scope.active, v)
	if v.Name != "" {
		p.chunk.Vars = append(p.chunk.Vars, v)
	}
}

// hidden takes the places of the variables that a for loop keeps to itself.
func (p *parser) hidden(at Span) {
	for range 3 {
		p.declare(&Var{Span: at})
	}
}

// mark and release bracket a block.
func (p *parser) mark() int { return len(p.scope.active) }

func (p *parser) release(mark int) { p.scope.active = p.scope.active[:mark] }

// resolve finds the local behind a name, innermost first, and notes it as an upvalue of every function between.
func (p *parser) resolve(n *Name) {
	for s := p.scope; s != nil; s = s.outer {
		for i := len(s.active) - 1; i >= 0; i-- {
			if v := s.active[i]; v.Name == n.Name {
				n.Var = v
				p.capture(s, v, n)
				return
			}
		}
	}
}

func (p *parser) capture(owner *scope, v *Var, n *Name) {
	for s := p.scope; s != owner; s = s.outer {
		s.upvalues[v] = true
		if len(s.upvalues) > maxUpvalues {
			p.fail(n.Start, n.Width(), "more than %d upvalues in one function", maxUpvalues)
		}
	}
}
