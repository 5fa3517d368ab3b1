package luagen

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	lua "github.com/yuin/gopher-lua"
)

// script draws scripts: their functions, what runs them, and where they read, write and stop.
type script struct {
	*rand.Rand
	lines []string
	names []string // of functions, and of what may hold one
	depth int
}

func (s *script) add(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *script) name() string {
	if len(s.names) == 0 {
		return "tostring"
	}
	return s.names[s.IntN(len(s.names))]
}

func (s *script) block() {
	s.depth++
	known := len(s.names)
	for range 1 + s.IntN(2) {
		s.statement()
	}
	s.names = s.names[:known]
	s.depth--
}

func (s *script) statement() {
	if s.depth < 2 && s.IntN(3) == 0 {
		s.nested()
		return
	}
	switch s.IntN(25) {
	case 0, 1, 2, 3, 4, 5:
		s.add("redis.call('GET', KEYS[1])")
	case 6, 7, 8:
		s.add("redis.call('SET', KEYS[1], 1)")
	case 9, 10, 11:
		s.add("if redis.call('EXISTS', KEYS[1]) == 0 then error('x', %d) end", 1+s.IntN(2))
	case 12:
		s.add("pcall(%s)", s.name())
	case 13:
		s.add("redis.call('GET', tostring(%s()))", s.name())
	case 14:
		name := fmt.Sprint("v", len(s.lines))
		s.add("local %s = %s", name, s.name())
		s.names = append(s.names, name)
	case 15:
		s.add("local t = {%s} t[1]()", s.name())
	case 24:
		s.add("%s(redis.call('SET', KEYS[1], 1))", s.name())
	case 16:
		if len(s.names) > 0 {
			s.add("%s = %s", s.name(), s.name())
		}
	default:
		s.add("%s()", s.name())
	}
}

// nested adds a statement that has others.
func (s *script) nested() {
	name := fmt.Sprint("f", len(s.lines))
	switch s.IntN(8) {
	case 0:
		s.add("local %s = function()", name)
		defer func() { s.names = append(s.names, name) }()
	case 1:
		s.add("for i = 1, 2 do")
	case 2:
		s.add("if redis.call('EXISTS', KEYS[1]) then")
	case 3: // calls itself, perhaps
		s.names = append(s.names, name)
		s.add("local function %s()", name)
	default:
		s.add("local function %s()", name)
		defer func() { s.names = append(s.names, name) }()
	}
	s.block()
	s.add("end")
}

// run runs a script in which the command of that number fails. It returns the line of its error, 0 for none, whether
// it had written by then, and how many commands it ran.
func run(text string, failing int) (line int, wrote bool, commands int) {
	l := lua.NewState(lua.Options{CallStackSize: 100})
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond) // some call themselves for ever
	defer cancel()
	l.SetContext(ctx)
	redis, keys := l.NewTable(), l.NewTable()
	keys.Append(lua.LString("k"))
	l.SetGlobal("redis", redis)
	l.SetGlobal("KEYS", keys)
	redis.RawSetString("call", l.NewFunction(func(l *lua.LState) int {
		commands++
		name := l.CheckString(1)
		switch failed := commands == failing; {
		case failed && name == "EXISTS":
			l.Push(lua.LNumber(0))
			return 1
		case failed || commands > 200:
			l.RaiseError("refused")
		}
		wrote = wrote || name == "SET"
		l.Push(lua.LNumber(1))
		return 1
	}))
	if err := l.DoString(text); err != nil {
		if at := regexp.MustCompile(`^<string>:(\d+):`).FindStringSubmatch(err.Error()); at != nil {
			line, _ = strconv.Atoi(at[1])
		}
	}
	return line, wrote, commands
}

// Scripts of functions that read, write, stop, and are kept, replaced and called anywhere: none has written where it
// stops at one of the lines.
func TestRandomScriptsHaveWrittenNothingAtTheLines(t *testing.T) {
	t.Parallel()
	stopped := 0
	for seed := range uint64(3000) {
		s := &script{Rand: rand.New(rand.NewPCG(seed, 1))}
		for range 2 + s.IntN(8) {
			s.statement()
		}
		text := strings.Join(s.lines, "\n")
		parsed, _ := Parse("x.lua", text)
		require.NotNil(t, parsed.Body, text)
		last := parsed.writesAfter()
		for failing, more := 1, true; more && failing < 30; failing++ {
			line, wrote, commands := run(text, failing)
			if more = commands >= failing; more && 0 < line && line <= last {
				require.False(t, wrote, "seed %d, command %d, line %d of %d:\n%s", seed, failing, line, last, text)
				stopped++
			}
		}
	}
	require.Greater(t, stopped, 1000, "scripts stop at the lines")
}
