package luagen

import (
	"fmt"
	"strings"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// pairsFrom says of a command with which argument its pairs begin.
var pairsFrom = map[string]int{"HSET": 2, "HMSET": 2, "MSET": 1, "MSETNX": 1}

// checkPairs reports arguments that are one too few: a field without a value, and fewer keys than their number says.
func (b *body) checkPairs(c redisCall, name string, cmd command) {
	n := len(c.args)
	if n < 2 || b.isMulti(c.args[n-1]) {
		return
	}
	first, ok := pairsFrom[name]
	if name == "XADD" {
		first, ok = streamFields(c.args)
	}
	if ok && (n-first)%2 != 0 {
		b.at(c.args[n-1], "C004", name+" with a name that has no value",
			"they stand in pairs: name, value, name, value")
	}
	for _, spec := range cmd.keys {
		if !spec.counted || spec.keyword != "" || spec.pos+spec.count >= n {
			continue
		}
		count, known := integer(c.args[spec.pos+spec.count])
		if at, _ := c.keysAt(spec); known && len(at) < count {
			b.at(c.args[spec.pos+spec.count], "C004",
				fmt.Sprintf("%s with %d keys, and %d follow", name, count, len(at)), "the number is that of the keys")
		}
	}
}

// streamFields is where the fields of XADD begin, behind the options and the id; ok is false where a variable can be
// one of them.
func streamFields(args []luaast.Expr) (at int, ok bool) {
	for at = 2; at < len(args); at++ {
		word, literal := args[at].(*luaast.Str)
		if !literal {
			return 0, false
		}
		switch strings.ToUpper(word.Value) {
		case "NOMKSTREAM", "KEEPREF", "DELREF", "ACKED":
		case "LIMIT":
			at++
		case "MAXLEN", "MINID":
			at++
			if s, ok := args[min(at, len(args)-1)].(*luaast.Str); ok && (s.Value == "~" || s.Value == "=") {
				at++
			}
		default:
			return at + 1, true
		}
	}
	return 0, false
}
