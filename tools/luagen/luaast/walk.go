package luaast

// Inspect visits every node of a list of statements in source order, with the node around it (nil at the top).
// When visit returns false, the nodes inside n are left out.
func Inspect(body []Stmt, visit func(n, parent Node) bool) {
	walker{visit}.body(nil, body)
}

type walker struct{ visit func(n, parent Node) bool }

func (w walker) body(parent Node, body []Stmt) {
	for _, s := range body {
		if w.visit(s, parent) {
			w.stmt(s)
		}
	}
}

func (w walker) stmt(s Stmt) {
	switch s := s.(type) {
	case *Local:
		w.exprs(s, s.Exprs...)
	case *Assign:
		w.exprs(s, s.Targets...)
		w.exprs(s, s.Exprs...)
	case *CallStmt:
		w.exprs(s, s.Call)
	case *FuncStmt:
		w.exprs(s, s.Target, s.Func)
	case *LocalFunc:
		w.exprs(s, s.Func)
	case *Return:
		w.exprs(s, s.Exprs...)
	default:
		w.nested(s)
	}
}

// nested visits statements that hold statements.
func (w walker) nested(s Stmt) {
	switch s := s.(type) {
	case *Do:
		w.body(s, s.Body)
	case *While:
		w.exprs(s, s.Cond)
		w.body(s, s.Body)
	case *Repeat:
		w.body(s, s.Body)
		w.exprs(s, s.Cond)
	case *If:
		for _, c := range s.Clauses {
			w.exprs(s, c.Cond)
			w.body(s, c.Body)
		}
	case *NumFor:
		w.exprs(s, s.Start, s.Limit, s.Step)
		w.body(s, s.Body)
	case *GenFor:
		w.exprs(s, s.Exprs...)
		w.body(s, s.Body)
	}
}

func (w walker) exprs(parent Node, list ...Expr) {
	for _, e := range list {
		if e != nil && w.visit(e, parent) {
			w.inside(e)
		}
	}
}

func (w walker) inside(e Expr) {
	switch e := e.(type) {
	case *Func:
		w.body(e, e.Body)
	case *Index:
		w.exprs(e, e.Obj, e.Key)
	case *Call:
		w.exprs(e, e.Fn)
		w.exprs(e, e.Args...)
	case *Binary:
		w.exprs(e, e.L, e.R)
	case *Unary:
		w.exprs(e, e.X)
	case *Paren:
		w.exprs(e, e.X)
	case *Table:
		for _, item := range e.Items {
			w.exprs(e, item.Key, item.Value)
		}
	}
}
