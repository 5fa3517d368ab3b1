package luagen

import (
	"maps"
	"slices"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// command is what the checks know of a Redis command.
type command struct {
	arity     int // arguments with the name; negative: at least
	write     bool
	on        serverSet // that have it
	noscript  serverSet // that refuse it in scripts
	since     string    // the version that brought it, above 7.0
	container bool      // has subcommands
	types     []string
	keys      []keySpec
}

// keySpec says where keys stand among the arguments, as COMMAND describes it. The name is argument 0.
type keySpec struct {
	pos     int    // the first key, or what count is relative to
	keyword string // instead of pos: the argument before the first key, searched from argument `from`
	from    int

	last, step, limit int // a range: last is relative to the first key, or -1 for the last argument

	counted      bool // the number of keys stands at pos+count, the first key at pos+first
	count, first int
}

// lookup finds a command by its full name, as namesOf gives it. A container without its subcommand may be any of them:
// it writes if one does. No other code reads the table, so that no check can take XGROUP for a read.
func lookup(name string) (command, bool) {
	if c, ok := containers[name]; ok {
		return c, true
	}
	c, ok := commands[name]
	return c, ok
}

// containers are the commands with subcommands, each with what its subcommands have in common.
var containers = joinSubcommands()

func joinSubcommands() map[string]command {
	joined := map[string]command{}
	for name, c := range commands {
		container, _, isSub := strings.Cut(name, "|")
		all, ok := joined[container]
		if !ok {
			all = commands[container]
		}
		if all.container {
			all.write = all.write || isSub && c.write
			if isSub && len(c.keys) > 0 {
				all.keys, all.types = c.keys, c.types // those of a container are the same
			}
			joined[container] = all
		}
	}
	return joined
}

// namesOf lists the commands that the arguments of redis.call can name, in upper case: GET, or XGROUP|CREATE. Where the
// text of the subcommand is not known, the container stands alone. ok is false where the command is not known.
func (t tracer) namesOf(args []luaast.Expr) (names []string, ok bool) {
	if len(args) == 0 {
		return nil, false
	}
	words, ok := t.texts(args[0])
	for _, word := range words {
		names = append(names, t.withSubcommands(strings.ToUpper(word), args)...)
	}
	return names, ok
}

func (t tracer) withSubcommands(name string, args []luaast.Expr) []string {
	if c, known := lookup(name); !known || !c.container || len(args) < 2 {
		return []string{name}
	}
	words, ok := t.texts(args[1])
	if !ok {
		return []string{name}
	}
	names := make([]string, len(words))
	for i, word := range words {
		names[i] = name + "|" + strings.ToUpper(word)
	}
	return names
}

// spoken is the name of a command as a script has it: XGROUP CREATE.
func spoken(name string) string { return strings.Replace(name, "|", " ", 1) }

// wholeNames are the names of the table without those of subcommands, sorted.
func wholeNames() []string {
	names := slices.Sorted(maps.Keys(commands))
	return slices.DeleteFunc(names, func(name string) bool { return strings.Contains(name, "|") })
}

// keyPositions lists the arguments that are keys, n being the number of arguments with the name. literal returns
// the value of a numeral argument, word the text of a string argument. ok is false when the count is not a literal.
func (k keySpec) keyPositions(n int, literal func(int) (int, bool), word func(int) string) (at []int, ok bool) {
	first := k.pos
	if k.keyword != "" {
		if first = findWord(k, n, word); first == 0 {
			return nil, true
		}
	}
	step := max(1, k.step)
	if k.counted {
		count, known := literal(first + k.count)
		if !known {
			return nil, false
		}
		for i := first + k.first; i < n && len(at) < count; i += step {
			at = append(at, i)
		}
		return at, true
	}
	last := first + k.last
	if k.last < 0 {
		last = n + k.last
		if k.limit > 1 {
			last = first + (n-first)/k.limit - 1
		}
	}
	for i := first; i <= last && i < n; i += step {
		at = append(at, i)
	}
	return at, true
}

func findWord(k keySpec, n int, word func(int) string) int {
	if k.from < 0 {
		for i := n + k.from; i > 0; i-- {
			if word(i) == k.keyword {
				return i + 1
			}
		}
		return 0
	}
	for i := k.from; i < n; i++ {
		if word(i) == k.keyword {
			return i + 1
		}
	}
	return 0
}
