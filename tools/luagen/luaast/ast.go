// Package luaast reads Lua 5.1 as Redis does: the same syntax, the same limits, and names resolved to their locals.
package luaast

// Pos is a place in the source: 1-based line and byte column, and the byte offset.
type Pos struct{ Line, Col, Off int }

// Span is the extent of a node.
type Span struct {
	Start Pos
	End   int // offset behind the last byte
}

// Extent returns the span itself, so that embedding it makes a Node.
func (s Span) Extent() Span { return s }

// Width is the number of bytes.
func (s Span) Width() int { return s.End - s.Start.Off }

// Node is any part of the tree.
type Node interface{ Extent() Span }

// Expr is an expression.
type Expr interface {
	Node
	expr()
}

// Stmt is a statement.
type Stmt interface {
	Node
	stmt()
}

// Var is a local variable: its declaration, and what the parser saw of its use.
type Var struct {
	Span
	Name string
	// the expression of a `local` that gives this variable its first value, nil if there is none of its own
	Init   Expr
	Func   *Func // the function whose parameter it is, else nil
	Index  int   // position among the parameters
	Vararg bool  // the table of a function's extra arguments
	Reads  int
	Writes int // assignments after the declaration
}

// The expressions.
type (
	// Const is nil, true or false.
	Const struct {
		Span
		Word string
	}
	// Number is a numeral.
	Number struct {
		Span
		Value float64
	}
	// Str is a string literal with its escapes resolved.
	Str struct {
		Span
		Value string
	}
	// Vararg is `...`.
	Vararg struct{ Span }
	// Func is a function body.
	Func struct {
		Span
		Params []*Var
		Vararg bool
		Body   []Stmt
	}
	// Name is a use of a variable; Var is nil for a global.
	Name struct {
		Span
		Name string
		Var  *Var
	}
	// Index is obj[key] or obj.key.
	Index struct {
		Span
		Obj, Key Expr
	}
	// Call is fn(args) or, with a Method, fn:method(args).
	Call struct {
		Span
		Fn     Expr
		Method string
		Args   []Expr
	}
	// Binary is l op r.
	Binary struct {
		Span
		Op   string
		L, R Expr
	}
	// Unary is op x.
	Unary struct {
		Span
		Op string
		X  Expr
	}
	// Paren is (x), which cuts a list of values to one.
	Paren struct {
		Span
		X Expr
	}
	// Table is a constructor.
	Table struct {
		Span
		Items []Item
	}
)

// Item is one field of a constructor; Key is nil for a positional one.
type Item struct{ Key, Value Expr }

// The statements.
type (
	// Local is `local a, b = x, y`.
	Local struct {
		Span
		Vars  []*Var
		Exprs []Expr
	}
	// Assign is `a, b = x, y`.
	Assign struct {
		Span
		Targets, Exprs []Expr
	}
	// CallStmt is a call whose values are dropped.
	CallStmt struct {
		Span
		Call *Call
	}
	// Do is a block.
	Do struct {
		Span
		Body []Stmt
	}
	// While is a loop with its test at the top.
	While struct {
		Span
		Cond Expr
		Body []Stmt
	}
	// Repeat is a loop with its test at the end.
	Repeat struct {
		Span
		Body []Stmt
		Cond Expr
	}
	// If has one clause for each condition; the else clause has none.
	If struct {
		Span
		Clauses []Clause
	}
	// NumFor is `for i = start, limit, step`; Step may be nil.
	NumFor struct {
		Span
		Var                *Var
		Start, Limit, Step Expr
		Body               []Stmt
	}
	// GenFor is `for a, b in exprs`.
	GenFor struct {
		Span
		Vars  []*Var
		Exprs []Expr
		Body  []Stmt
	}
	// FuncStmt is `function a.b:c()`.
	FuncStmt struct {
		Span
		Target Expr
		Func   *Func
	}
	// LocalFunc is `local function f()`.
	LocalFunc struct {
		Span
		Var  *Var
		Func *Func
	}
	// Return ends a function.
	Return struct {
		Span
		Exprs []Expr
	}
	// Break ends a loop.
	Break struct{ Span }
)

// Clause is one branch of an If.
type Clause struct {
	Cond Expr // nil for else
	Body []Stmt
}

// Chunk is a whole file.
type Chunk struct {
	Body    []Stmt
	Globals []Global
	Vars    []*Var // all locals, in the order of their declarations
	Lines   []Pos  // where comments to the end of a line begin; not long ones
	End     Pos
}

// Global is a use of a name that is no local.
type Global struct {
	*Name
	Write bool
}

func (*Const) expr()  {}
func (*Number) expr() {}
func (*Str) expr()    {}
func (*Vararg) expr() {}
func (*Func) expr()   {}
func (*Name) expr()   {}
func (*Index) expr()  {}
func (*Call) expr()   {}
func (*Binary) expr() {}
func (*Unary) expr()  {}
func (*Paren) expr()  {}
func (*Table) expr()  {}

func (*Local) stmt()     {}
func (*Assign) stmt()    {}
func (*CallStmt) stmt()  {}
func (*Do) stmt()        {}
func (*While) stmt()     {}
func (*Repeat) stmt()    {}
func (*If) stmt()        {}
func (*NumFor) stmt()    {}
func (*GenFor) stmt()    {}
func (*FuncStmt) stmt()  {}
func (*LocalFunc) stmt() {}
func (*Return) stmt()    {}
func (*Break) stmt()     {}
