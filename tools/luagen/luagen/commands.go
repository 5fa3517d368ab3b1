package luagen

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

// lookup finds a command; sub is its first argument, if that is a literal.
func lookup(name, sub string) (command, bool) {
	c, ok := commands[name]
	if ok && c.container && sub != "" {
		if s, found := commands[name+"|"+sub]; found {
			return s, true
		}
		return c, c.arity < 0 && name == "COMMAND"
	}
	return c, ok
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
