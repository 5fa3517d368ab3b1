package luaprove

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// now is the server's clock in all runs, in seconds. A stopped clock makes a repeat comparable.
const now = 1_900_000_000

// Input is one call: what KEYS and ARGV are.
type Input struct{ Keys, Args []string }

// source draws calls and data for a script out of few words, so that arguments meet what is stored.
type source struct {
	*rand.Rand
	script *luagen.Script
	words  []string
	fields []string // that the script names in a command: they are stored, and no argument
	heads  []string // what its other fields begin with
	large  []int64  // that arguments within their bounds are compared with
	stored state    // where texts may be taken from
}

// literals are what a script compares with.
var literals = regexp.MustCompile(`[=~]= *['"]([a-zA-Z0-9_]{1,20})['"]`)

func newSource(s *luagen.Script, seed uint64) *source {
	g := &source{Rand: rand.New(rand.NewPCG(seed, seed)), script: s, words: []string{"a", "b", "1", "2", "10"}}
	for _, m := range literals.FindAllStringSubmatch(s.Source, -1) {
		if !slices.Contains(g.words, m[1]) {
			g.words = append(g.words, m[1])
		}
	}
	g.findFields()
	for _, a := range s.Args {
		switch {
		case a.Max != nil:
			g.large = append(g.large, *a.Max)
		case a.Min != nil:
			g.large = append(g.large, *a.Min+10)
		}
	}
	return g
}

var (
	member = regexp.MustCompile(`^[a-zA-Z0-9_:.-]{1,20}$`)
	// Commands with fields, members and elements.
	collection = regexp.MustCompile(`^(?i)(H|L|R|Z|S[AIMR])[A-Z]+$`)
)

// findFields notes the texts that a script passes to a command behind the key, and what such an argument begins with.
func (g *source) findFields() {
	luaast.Inspect(g.script.Body.Body, func(n, _ luaast.Node) bool {
		call, ok := n.(*luaast.Call)
		if !ok || len(call.Args) < 3 {
			return true
		}
		if name, ok := call.Args[0].(*luaast.Str); !ok || !collection.MatchString(name.Value) {
			return true
		}
		for _, arg := range call.Args[2:] {
			if joined, ok := arg.(*luaast.Binary); ok && joined.Op == ".." {
				g.heads = noted(g.heads, joined.L)
			}
			g.fields = noted(g.fields, arg)
		}
		return true
	})
}

// noted adds a literal that can be a field, once.
func noted(list []string, e luaast.Expr) []string {
	if text, ok := e.(*luaast.Str); ok && member.MatchString(text.Value) && !slices.Contains(list, text.Value) {
		return append(list, text.Value)
	}
	return list
}

func (g *source) pick(list ...string) string { return list[g.IntN(len(list))] }

// input draws the keys and arguments of one call. Keys have the names of the header: scripts that name one alike share
// it.
func (g *source) input() Input {
	var in Input
	rows := 1
	if g.script.Merge > 1 {
		rows += g.IntN(2)
	}
	for row := range rows {
		other := ""
		if row > 0 {
			other = g.pick("", "2")
		}
		for _, k := range g.script.Keys[:g.script.FixedKeys()] {
			in.Keys = append(in.Keys, "{p}:"+k.Name+other)
		}
		for _, a := range g.script.Args {
			in.Args = append(in.Args, g.value(a.Type, a.Min, a.Max))
		}
	}
	many, groups := g.IntN(3), g.IntN(4)
	if g.script.Tied() {
		groups = many
	}
	if k := g.script.VariadicKey(); k != nil {
		for i := range many {
			for _, e := range k.Elements() {
				in.Keys = append(in.Keys, fmt.Sprintf("{p}:%s:%d", e.Name, i))
			}
		}
	}
	if group := g.script.Group; group != nil {
		for range groups {
			for _, f := range group.Fields {
				in.Args = append(in.Args, g.value(f.Type, nil, nil))
			}
		}
	}
	return in
}

// text draws a text: a fixed sample, or a value that is stored.
func (g *source) text() string {
	if len(g.stored) > 0 && g.IntN(2) == 0 {
		if e := g.stored[g.IntN(len(g.stored))]; len(e.elements) > 0 {
			word := e.elements[g.IntN(len(e.elements))]
			if !strings.Contains(g.script.Source, "'"+word+"'") { // a name of the layout is nobody's
				return word
			}
		}
	}
	return g.pick(g.words...)
}

// value draws one argument of a type.
func (g *source) value(t luagen.Type, low, high *int64) string {
	if t.Optional && g.IntN(3) == 0 {
		return ""
	}
	switch t.Kind {
	case luagen.Bool:
		return g.pick("0", "1")
	case luagen.Float:
		return g.pick("0", "1.5", "10")
	case luagen.String, luagen.Bytes:
		return g.text()
	case luagen.TimeSeconds:
		return strconv.Itoa(now - 60 + 120*g.IntN(2))
	case luagen.TimeMillis:
		return strconv.Itoa((now - 60 + 120*g.IntN(2)) * 1000)
	case luagen.Enum:
		return strconv.FormatInt(t.Values[g.IntN(len(t.Values))].Value, 10)
	case luagen.Millis:
		return g.number(low, high, 60_000, 90_000)
	case luagen.Seconds:
		return g.number(low, high, 60, 90)
	case luagen.Int:
		if low == nil || *low < 0 {
			return g.number(low, high, 0, 1, 2, 5, 10, -1)
		}
	}
	return g.number(low, high, 0, 1, 2, 5, 10)
}

// number draws among values and the bounds, within the bounds.
func (g *source) number(low, high *int64, values ...int64) string {
	v := values[g.IntN(len(values))]
	if low != nil {
		v = max(v, *low+int64(g.IntN(2)))
	}
	if high != nil {
		v = min(v, *high)
	}
	return strconv.FormatInt(v, 10)
}

// data draws commands that store something under a key, of the type or of any; none for nothing. Some keys expire.
func (g *source) data(key, typ string) [][]any {
	if g.IntN(3) == 0 {
		return nil
	}
	if typ == "stream" {
		return g.stream(key)
	}
	out := [][]any{g.content(key, typ)}
	if g.IntN(3) == 0 {
		out = append(out, []any{"PEXPIRE", key, 45_000})
	}
	return out
}

// stream draws entries, of which a group has some on its hands.
func (g *source) stream(key string) [][]any {
	out := [][]any{
		{"XADD", key, "1-1", g.pick(g.words...), g.pick(g.words...)},
		{"XADD", key, "1-2", g.pick(g.words...), g.pick(g.words...)},
		// two deliveries are left for a call and its repeat
		{"XADD", key, "1-3", g.pick(g.words...), g.pick(g.words...)},
	}
	if g.IntN(2) == 0 {
		group := g.pick(g.words...)
		out = append(out, []any{"XGROUP", "CREATE", key, group, "0"},
			[]any{"XREADGROUP", "GROUP", group, g.pick(g.words...), "COUNT", 1, "STREAMS", key, ">"})
	}
	return out
}

// content draws a command that stores something of a type.
func (g *source) content(key, typ string) []any {
	if typ == "" {
		typ = g.pick("string", "list", "set", "zset", "hash")
	}
	w := func() string { return g.pick(slices.Concat(g.words, g.fields)...) }
	switch typ {
	case "list":
		return []any{"RPUSH", key, w(), w()}
	case "set":
		return []any{"SADD", key, w(), w()}
	case "zset":
		return []any{"ZADD", key, int64(now - 30), w(), int64(now-30) * 1000, w(), g.IntN(10), w()}
	case "hash":
		return g.hash(key)
	}
	return []any{"SET", key, g.pick("a", "b", g.amount(), g.amount(), g.amount())}
}

// hash draws most of the fields that the script asks for, one of those whose beginning it has, and others.
func (g *source) hash(key string) []any {
	cmd := []any{"HSET", key, g.pick(g.words...), g.IntN(20), g.pick(g.words...), g.pick(g.words...)}
	for _, field := range g.fields {
		if g.IntN(4) > 0 {
			cmd = append(cmd, field, g.pick(g.pick(g.words...), g.amount(), g.amount()))
		}
	}
	for _, head := range g.heads {
		cmd = append(cmd, head+g.pick(g.words...), g.amount())
	}
	return cmd
}

// amount draws a stored number: few, or as many as an argument may be.
func (g *source) amount() string {
	if len(g.large) > 0 && g.IntN(2) == 0 {
		return strconv.FormatInt(g.large[g.IntN(len(g.large))], 10)
	}
	return g.pick("1", "5", "20")
}
