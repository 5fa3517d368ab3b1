package luacover_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luaast"
	"github.com/luatomic/luatomic/tools/luagen/luacover"
)

const script = `-- doc
local function double(n)
  return n * 2
end
local x = 1
if x == 1 then x = double(x) else x = 3 end
for i = 1, 2 do
  x = x + i
end
return x
`

func TestStatementsAndMarks(t *testing.T) {
	t.Parallel()
	all := luacover.Statements(script)
	require.Len(t, all, 9)
	require.Equal(t, 2, all[0].Start.Line)
	require.Equal(t, 2, all[0].End.Line, "the head of the function, not its body")
	require.Equal(t, 6, all[3].Start.Line)
	require.Equal(t, "if x == 1 then", script[all[3].Start.Off:all[3].End.Off])
	require.Equal(t, 10, all[8].Start.Line)
	marked := luacover.Mark(script)
	require.Equal(t, strings.Count(script, "\n"), strings.Count(marked, "\n"), "lines stay")
	require.Equal(t, 9, strings.Count(marked, "luagen_mark("))
	require.Contains(t, marked, luacover.Digest(script))
	require.Contains(t, marked, "\nluagen_mark(2); local x = 1")
}

func TestWhatCannotBeMarkedStaysAsItIs(t *testing.T) {
	t.Parallel()
	names := make([]string, 60)
	for i := range names {
		names[i] = fmt.Sprint("u", i)
	}
	all := strings.Join(names, ",")
	full := "local " + all + "\nlocal function f() return " + all + " end\nf()\n"
	require.Equal(t, full, luacover.Mark(full), "no room for one more upvalue")
	require.Equal(t, "local = 1", luacover.Mark("local = 1"))
	require.Equal(t, "-- nothing\n", luacover.Mark("-- nothing\n"))
}

func TestMarkBeforeParenthesis(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, "(redis.call)('PING')", luacover.Mark("(redis.call)('PING')"))
}

// The script behind a guard keeps its lines, and sees no mark of the guard.
func TestAMarkedGuardStaysApartFromTheScriptBehindIt(t *testing.T) {
	t.Parallel()
	const guard = "do\n  if x() then\n    return 1\n  end\nend\n"
	marked := luacover.MarkGuard(guard)
	require.Equal(t, 2, strings.Count(marked, "luagen_mark("))
	require.Equal(t, strings.Count(guard, "\n"), strings.Count(marked, "\n"))
	require.True(t, strings.HasSuffix(marked, "\nend "), "the script comes on this line")
	_, err := luaast.Parse(marked + luacover.Mark("return 2\n"))
	require.NoError(t, err)
}
