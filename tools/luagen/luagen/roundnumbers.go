package luagen

import (
	"math"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// round is the first number with eight zeros at its end. Redis 7.2.0 to 7.2.4 write such a number into a command as
// 1e+8, and a command that takes an integer refuses that, after a write for good.
const round = 1e8

// few is what a count of something that is there stays below.
const few = 1e6

// checkRoundNumbers reports numbers of Lua that may be so large where a command takes an integer. Without a header an
// argument has no bound, so only times in ms and increments are judged, which programs fill with such numbers.
func (b *body) checkRoundNumbers() {
	f := b.flow()
	sizes := sizes{flow: f, most: map[use]float64{}, number: map[use]bool{}, fields: b.fieldValues(),
		inField: map[string]float64{}, compared: map[any]float64{}}
	for _, c := range b.commands {
		names := f.commandNames(c.node)
		if len(names) != 1 {
			continue
		}
		for _, p := range integersOf(names[0], c.args) {
			if e := c.args[p.at]; sizes.isNumber(e) && sizes.mayBeRound(e, p.large || !b.bare) {
				b.at(e, "N003", "a number of 1e8 or more as "+p.what+": Redis 7.2.0 to 7.2.4 write 900000000 as "+
					"9e+8, which is no integer", "write string.format('%.0f', n), or limit it: math.min(n, 99999999)")
			}
		}
	}
}

// integerPlace is an argument that a command takes as an integer.
type integerPlace struct {
	at    int
	what  string
	large bool // a time in ms, or an increment
}

var (
	// integerWords are options with an integer behind them, and how many there are.
	integerWords = map[string]int{"EX": 1, "PX": 1, "EXAT": 1, "PXAT": 1, "LIMIT": 2, "COUNT": 1, "MAXLEN": 1,
		"BLOCK": 1, "RANK": 1, "IDLE": 1}
	// integerPlaces are arguments by their number. The words of ZRANGE tell whether its range is one of ranks.
	integerPlaces = map[string][]int{
		"EXPIRE": {2}, "PEXPIRE": {2}, "EXPIREAT": {2}, "PEXPIREAT": {2}, "SETEX": {2}, "PSETEX": {2}, "HEXPIRE": {2},
		"HPEXPIRE": {2}, "HEXPIREAT": {2}, "HPEXPIREAT": {2}, "INCRBY": {2}, "DECRBY": {2}, "HINCRBY": {3},
		"LRANGE": {2, 3}, "LTRIM": {2, 3}, "LINDEX": {2}, "LSET": {2}, "LREM": {2}, "LPOP": {2}, "RPOP": {2},
		"SPOP": {2}, "SRANDMEMBER": {2}, "ZPOPMIN": {2}, "ZPOPMAX": {2}, "ZRANGE": {2, 3}, "ZREVRANGE": {2, 3},
		"ZREMRANGEBYRANK": {2, 3}, "GETRANGE": {2, 3}, "SETRANGE": {2}, "GETBIT": {2}, "SETBIT": {2}, "XCLAIM": {4},
		"XAUTOCLAIM": {4},
	}
	// largePlaces are the times in ms and the increments among them.
	largePlaces = map[string]bool{"PX": true, "PXAT": true, "IDLE": true, "PEXPIRE": true, "PEXPIREAT": true,
		"PSETEX": true, "HPEXPIRE": true, "HPEXPIREAT": true, "INCRBY": true, "DECRBY": true, "HINCRBY": true,
		"XCLAIM": true, "XAUTOCLAIM": true}
	// wordCommands are the commands that have such options. In any other command the word is a value, not an option.
	wordCommands = strings.Fields("SET GETEX HGETEX HSETEX ZRANGE ZRANGEBYSCORE ZREVRANGEBYSCORE ZRANGEBYLEX " +
		"ZREVRANGEBYLEX ZRANGESTORE SORT SORT_RO ZINTERCARD SINTERCARD SCAN SSCAN HSCAN ZSCAN XRANGE XREVRANGE XREAD " +
		"XREADGROUP XADD XTRIM XCLAIM XAUTOCLAIM XPENDING LPOS LMPOP ZMPOP GEOSEARCH GEOSEARCHSTORE")
)

// integersOf lists the arguments of a command that it takes as integers.
func integersOf(name string, args []luaast.Expr) (places []integerPlace) {
	word := func(i int) string {
		s, _ := args[i].(*luaast.Str)
		if s == nil {
			return ""
		}
		return strings.ToUpper(s.Value)
	}
	byValue := false
	if slices.Contains(wordCommands, name) {
		for i := 2; i < len(args); i++ {
			byValue = byValue || word(i) == "BYSCORE" || word(i) == "BYLEX"
			for at := i + 1; at <= i+integerWords[word(i)] && at < len(args); at++ {
				places = append(places, integerPlace{at, word(i), largePlaces[word(i)]})
			}
		}
	}
	for _, at := range integerPlaces[name] {
		if at < len(args) && !(name == "ZRANGE" && byValue) {
			places = append(places, integerPlace{at, "an integer of " + name, largePlaces[name]})
		}
	}
	return places
}

// sizes bounds numbers of a script from above, as magnitude does from below. The maps are its memory; a local that is
// being judged counts as small there, so that a counter is.
type sizes struct {
	flow
	most   map[use]float64
	number map[use]bool
	fields map[string][]luaast.Expr // what the script writes into fields of tables, by their names

	inField  map[string]float64 // by the name of the field; one that is being judged counts as small, too
	compared map[any]float64    // limits by what is compared; none while it is sought, as in a < b, b < a
}

// use is a local behind one of its assignments.
type use struct {
	v     *luaast.Var
	since *luaast.Assign // the last one on each way to the use; nil for none
}

// fieldValues lists what constructors and assignments give to the fields of tables.
func (b *body) fieldValues() map[string][]luaast.Expr {
	values := map[string][]luaast.Expr{}
	add := func(key, value luaast.Expr) {
		if name, ok := key.(*luaast.Str); ok {
			values[name.Value] = append(values[name.Value], value)
		}
	}
	luaast.Inspect(b.Body.Body, func(n, _ luaast.Node) bool {
		switch n := n.(type) {
		case *luaast.Table:
			for _, item := range n.Items {
				add(item.Key, item.Value)
			}
		case *luaast.Assign:
			for i, target := range n.Targets {
				if field, ok := target.(*luaast.Index); ok && i < len(n.Exprs) {
					add(field.Key, n.Exprs[i])
				} else if ok {
					add(field.Key, nil)
				}
			}
		}
		return true
	})
	return values
}

// valuesAt are what a local can hold where it is used: what is assigned to it before, on each way, ends the rest.
func (s sizes) valuesAt(n *luaast.Name) (use, []luaast.Expr) {
	at := use{v: n.Var}
	for node := luaast.Node(n); node != nil; node = s.parents[node] {
		stmt, ok := node.(luaast.Stmt)
		if !ok {
			continue
		}
		for _, before := range s.before(stmt) {
			if a, ok := before.(*luaast.Assign); ok && s.assigns(a, n.Var) {
				at.since = a
			}
		}
		if at.since != nil {
			break
		}
	}
	values := s.sourcesOf(n.Var)
	if at.since == nil {
		return at, values
	}
	start := at.since.Extent().Start.Off
	return at, slices.DeleteFunc(values, func(e luaast.Expr) bool {
		return e.Extent().Start.Off < start || !slices.Contains(s.assigned[n.Var], e)
	})
}

// before are the statements of the same block in front of one.
func (s sizes) before(stmt luaast.Stmt) []luaast.Stmt {
	for _, block := range s.blocks(s.parents[stmt]) {
		if i := slices.Index(block, stmt); i >= 0 {
			return block[:i]
		}
	}
	return nil
}

func (s sizes) blocks(n luaast.Node) (blocks [][]luaast.Stmt) {
	switch n := n.(type) {
	case nil:
		return [][]luaast.Stmt{s.Body.Body}
	case *luaast.Do:
		return [][]luaast.Stmt{n.Body}
	case *luaast.While:
		return [][]luaast.Stmt{n.Body}
	case *luaast.Repeat:
		return [][]luaast.Stmt{n.Body}
	case *luaast.NumFor:
		return [][]luaast.Stmt{n.Body}
	case *luaast.GenFor:
		return [][]luaast.Stmt{n.Body}
	case *luaast.Func:
		return [][]luaast.Stmt{n.Body}
	case *luaast.If:
		for _, c := range n.Clauses {
			blocks = append(blocks, c.Body)
		}
	}
	return blocks
}

// assigns reports an assignment that gives the local one value.
func (s sizes) assigns(a *luaast.Assign, v *luaast.Var) bool {
	i := slices.IndexFunc(a.Targets, func(e luaast.Expr) bool { return localVar(e) == v })
	return i >= 0 && i < len(a.Exprs)
}

// mayBeRound reports a number that can be 1e8 or more; any says whether one without a bound counts.
func (s sizes) mayBeRound(e luaast.Expr, any bool) bool {
	if n, ok := s.constant(e, 0); ok {
		return n != 0 && math.Mod(n, round) == 0
	}
	return s.magnitude(e, 0) >= round || any && s.atMost(e) >= round
}

// constant is the value of an expression of literals.
func (s sizes) constant(e luaast.Expr, depth int) (float64, bool) {
	if depth > 16 {
		return 0, false
	}
	depth++
	switch e := e.(type) {
	case *luaast.Paren:
		return s.constant(e.X, depth)
	case *luaast.Number:
		return e.Value, true
	case *luaast.Unary:
		n, ok := s.constant(e.X, depth)
		return -n, ok && e.Op == "-"
	case *luaast.Name:
		if v := e.Var; v != nil && v.Writes == 0 && v.Func == nil && v.Init != nil {
			return s.constant(v.Init, depth)
		}
	case *luaast.Binary:
		l, isLeft := s.constant(e.L, depth)
		r, isRight := s.constant(e.R, depth)
		value := map[string]float64{"+": l + r, "-": l - r, "*": l * r, "/": l / r}
		n, known := value[e.Op]
		return n, isLeft && isRight && known
	}
	return 0, false
}

// numeric are the functions whose result is a number.
var numeric = map[string]bool{"tonumber": true, "math.floor": true, "math.ceil": true, "math.min": true,
	"math.max": true, "math.abs": true, "math.pow": true, "math.fmod": true, "math.sqrt": true, "math.random": true,
	"math.modf": true}

// numberReplies are the commands whose reply is a number that does not count what is there.
var numberReplies = map[string]bool{"TTL": true, "PTTL": true, "EXPIRETIME": true, "PEXPIRETIME": true, "INCR": true,
	"INCRBY": true, "DECR": true, "DECRBY": true, "HINCRBY": true}

// isNumber reports that a value is a number on some path, and not the text of one.
func (s sizes) isNumber(e luaast.Expr) bool {
	switch e := e.(type) {
	case *luaast.Paren:
		return s.isNumber(e.X)
	case *luaast.Number:
		return true
	case *luaast.Unary:
		return e.Op == "-" || e.Op == "#"
	case *luaast.Binary:
		switch e.Op {
		case "+", "-", "*", "/", "%", "^":
			return true
		case "and":
			return s.isNumber(e.R)
		case "or":
			return s.isNumber(e.L) || s.isNumber(e.R)
		}
	case *luaast.Call:
		if names := s.commandNames(e); len(names) == 1 {
			return numberReplies[names[0]]
		}
		return numeric[builtin(e)] || s.returnsNumber(e)
	case *luaast.Name:
		return s.isNumberVar(e)
	}
	return false
}

func (s sizes) returnsNumber(c *luaast.Call) bool {
	f, at := s.localFunc(c), use{v: localVar(c.Fn)}
	if f == nil || s.number[at] {
		return false
	}
	s.number[at] = true
	defer delete(s.number, at)
	return slices.ContainsFunc(returns(f.Body), func(r *luaast.Return) bool {
		return len(r.Exprs) > 0 && s.isNumber(r.Exprs[0])
	})
}

func (s sizes) isNumberVar(n *luaast.Name) bool {
	if n.Var == nil {
		return false
	}
	at, values := s.valuesAt(n)
	is, known := s.number[at]
	if !known {
		s.number[at] = false
		is = s.loopVars[n.Var] != nil || slices.ContainsFunc(values, s.isNumber)
		s.number[at] = is
	}
	return is
}

// atMost is a bound of how large a number is, its sign aside; infinite where none is known.
func (s sizes) atMost(e luaast.Expr) float64 {
	switch e := e.(type) {
	case *luaast.Paren:
		return s.atMost(e.X)
	case *luaast.Number:
		return math.Abs(e.Value)
	case *luaast.Unary:
		if e.Op == "-" {
			return s.atMost(e.X)
		}
		return few
	case *luaast.Binary:
		return min(s.limitOf(e), s.mostOf(e))
	case *luaast.Call:
		return min(s.limitOf(e), s.mostOfCall(e))
	case *luaast.Index:
		return min(s.limitOf(e), s.mostOfElement(e))
	case *luaast.Name:
		return s.mostOfVar(e)
	case *luaast.Const:
		return 0
	}
	return math.Inf(1)
}

func (s sizes) mostOf(e *luaast.Binary) float64 {
	l, r := s.atMost(e.L), s.atMost(e.R)
	switch e.Op {
	case "+", "-":
		return l + r
	case "*":
		if l == 0 || r == 0 {
			return 0
		}
		return l * r
	case "/":
		if by, ok := s.constant(e.R, 0); ok && by != 0 {
			return l / math.Abs(by)
		}
		return l
	case "%":
		return min(l, r)
	case "and":
		return r
	case "or":
		return max(l, r)
	case "==", "~=", "<", ">", "<=", ">=":
		return 0
	}
	return math.Inf(1)
}

// counting are commands whose reply is how much is there, or has changed.
var counting = strings.Fields(`
APPEND BITCOUNT BITPOS DEL EXISTS EXPIRE HDEL HEXISTS HLEN HSET HSETNX HSTRLEN LINSERT LLEN LPOS LPUSH LPUSHX LREM
PERSIST PEXPIRE PFADD PFCOUNT PUBLISH RPUSH RPUSHX SADD SCARD SDIFFSTORE SETNX SETRANGE SINTERCARD SINTERSTORE SISMEMBER
SREM STRLEN SUNIONSTORE TOUCH UNLINK XACK XDEL XLEN XTRIM ZADD ZCARD ZCOUNT ZINTERCARD ZINTERSTORE ZLEXCOUNT ZRANK ZREM
ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANK ZUNIONSTORE`)

func (s sizes) mostOfCall(c *luaast.Call) float64 {
	if names := s.commandNames(c); len(names) > 0 {
		if slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(counting, name) }) {
			return math.Inf(1)
		}
		return few
	}
	switch name := builtin(c); name {
	case "math.min":
		least := math.Inf(1)
		for _, arg := range c.Args {
			least = min(least, s.atMost(arg))
		}
		return least
	case "tonumber", "math.floor", "math.ceil", "math.abs", "math.max", "math.sqrt":
		most := 0.0
		for _, arg := range c.Args[:min(len(c.Args), mostArgs(name))] {
			most = max(most, s.atMost(arg))
		}
		if name == "tonumber" && len(c.Args) > 1 {
			return math.Inf(1)
		}
		return most
	case "math.fmod":
		return s.atMost(c.Args[len(c.Args)-1])
	case "string.len", "string.find", "string.byte", "select":
		return few
	}
	return s.mostReturned(c)
}

// mostArgs is how many arguments say how large the result is.
func mostArgs(name string) int {
	if name == "math.max" {
		return stackLimit
	}
	return 1
}

func (s sizes) mostReturned(c *luaast.Call) float64 {
	f, at := s.localFunc(c), use{v: localVar(c.Fn)}
	if f == nil {
		return math.Inf(1)
	}
	if most, ok := s.most[at]; ok {
		return most
	}
	s.most[at] = 0
	most := 0.0
	for _, r := range returns(f.Body) {
		if len(r.Exprs) > 0 {
			most = max(most, s.atMost(r.Exprs[0]))
		}
	}
	s.most[at] = most
	return most
}

// mostOfElement is the bound that the header gives an argument, that of a part of the clock, and that of what the
// script itself writes into a field.
func (s sizes) mostOfElement(e *luaast.Index) float64 {
	if at, ok := entry(e); ok && !at.key && !s.bare && at.index >= 1 && at.index <= len(s.Args) {
		return s.Args[at.index-1].most()
	}
	if n, ok := integer(e.Key); ok && n == 2 && s.commandOf(e.Obj) == "TIME" {
		return few
	}
	name, _ := e.Key.(*luaast.Str)
	if name == nil || len(s.fields[name.Value]) == 0 {
		return math.Inf(1)
	}
	if most, ok := s.inField[name.Value]; ok {
		return most
	}
	s.inField[name.Value] = 0
	most := 0.0
	for _, value := range s.fields[name.Value] {
		most = max(most, s.atMost(value))
	}
	s.inField[name.Value] = most
	return most
}

// most is the largest number that a header lets through.
func (a Arg) most() float64 {
	switch {
	case a.Type.Kind == Bool:
		return 1
	case a.Type.Kind == Enum:
		most := 0.0
		for _, v := range a.Type.Values {
			most = max(most, math.Abs(float64(v.Value)))
		}
		return most
	case a.Max == nil || a.Type.Kind == String || a.Type.Kind == Bytes:
		return math.Inf(1)
	case a.Min != nil:
		return max(math.Abs(float64(*a.Min)), math.Abs(float64(*a.Max)))
	}
	return math.Abs(float64(*a.Max))
}

func (s sizes) mostOfVar(n *luaast.Name) float64 {
	if n.Var == nil {
		return math.Inf(1)
	}
	at, values := s.valuesAt(n)
	if most, ok := s.most[at]; ok {
		return most
	}
	s.most[at] = 0
	if loop := s.loopVars[n.Var]; loop != nil {
		values = []luaast.Expr{loop.Start, loop.Limit}
	}
	most := 0.0
	for _, value := range values {
		most = max(most, s.atMost(value))
	}
	if len(values) == 0 {
		most = math.Inf(1)
	}
	s.most[at] = min(most, s.limitOf(n))
	return s.most[at]
}

// limitOf is the least number that the script compares an expression with as a limit.
func (s sizes) limitOf(e luaast.Expr) float64 {
	least, key := math.Inf(1), s.limitKey(e)
	if limit, ok := s.compared[key]; ok {
		return limit
	}
	s.compared[key] = least
	for _, n := range s.limits {
		switch n := n.(type) {
		case *luaast.Binary:
			for _, side := range [][2]luaast.Expr{{n.L, n.R}, {n.R, n.L}} {
				if s.limitKey(side[0]) == key && s.isLimit(side[1]) {
					least = min(least, s.atMost(side[1]))
				}
			}
		case *luaast.Assign:
			least = min(least, s.limitGiven(n, key))
		}
	}
	s.compared[key] = least
	return least
}

// limitGiven is what an assignment of math.min limits its target to.
func (s sizes) limitGiven(n *luaast.Assign, key any) float64 {
	least := math.Inf(1)
	for i, target := range n.Targets {
		if i >= len(n.Exprs) || builtin(n.Exprs[i]) != "math.min" || s.limitKey(target) != key {
			continue
		}
		for _, arg := range n.Exprs[i].(*luaast.Call).Args {
			if s.limitKey(arg) != key {
				least = min(least, s.atMost(arg))
			}
		}
	}
	return least
}

// isLimit tells a limit from a test for a number above 0, and from a counter.
func (s sizes) isLimit(e luaast.Expr) bool {
	if n, ok := e.(*luaast.Number); ok {
		return n.Value > 1
	}
	v := localVar(e)
	return v == nil || s.loopVars[v] == nil && !s.countsCalls(v) && !(v.Writes > 0 && steps(v, s.Body.Body, "+", "-"))
}
