package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// What a server refuses under EVAL_RO is what the rules refuse under @readonly: writes, and what is passed on to
// replicas.
func TestReadonlyIsThatOfTheServer(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	list, err := client.Command(t.Context()).Result()
	require.NoError(t, err)
	tried := 0
	for name, info := range list {
		if info.FirstKeyPos == 0 && !slices.Contains(info.Flags, "pubsub") {
			continue
		}
		args := []any{name}
		for n := max(info.Arity, -info.Arity); len(args) < int(n); {
			args = append(args, "1")
		}
		err := client.EvalRO(t.Context(), "return redis.call(unpack(ARGV))", nil, args...).Err()
		call := "return redis.call('" + name + strings.Repeat("', '1", len(args)-1) + "')\n"
		text := "--- X does.\n---@readonly\n---@reply any\n\n" + call
		found := luagen.Vet("x.lua", text)
		has := func(rule string) bool {
			return slices.ContainsFunc(found, func(d luagen.Diagnostic) bool { return d.Rule == rule })
		}
		if has("C001") || has("C002") || err != nil && strings.Contains(err.Error(), "not allowed from script") {
			continue
		}
		tried++
		refused := err != nil && strings.Contains(err.Error(), "Write commands are not allowed from read-only")
		require.Equal(t, refused, has("C005"), "%s: %v", name, err)
	}
	require.Greater(t, tried, 150)
}

// A function of a library is known where the server has it. Lua 5.2 to 5.4 have others.
func TestFunctionsAreThoseOfTheServer(t *testing.T) {
	t.Parallel()
	client := luatomictest.Client(t)
	later := strings.Fields("table.unpack table.pack table.move string.pack string.unpack math.tointeger math.type " +
		"os.time os.date os.getenv bit.extract coroutine.isyieldable coroutine.close")
	const list = `local names = {}
for _, lib in ipairs({'string', 'table', 'math', 'bit', 'struct', 'cmsgpack', 'coroutine', 'os'}) do
  for name, f in pairs(rawget(_G, lib) or {}) do
    if type(f) == 'function' then table.insert(names, lib .. '.' .. name) end
  end
end
return names`
	names, err := client.Eval(t.Context(), list, nil).StringSlice()
	require.NoError(t, err)
	require.Greater(t, len(names), 50)
	for _, name := range slices.Concat(names, later) {
		found := luagen.Vet("x.lua", "return "+name+"(ARGV[1])\n")
		unknown := slices.ContainsFunc(found, func(d luagen.Diagnostic) bool { return d.Rule == "G002" })
		require.Equal(t, !slices.Contains(names, name), unknown, name)
	}
}
