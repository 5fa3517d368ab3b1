package luagen_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// An integer that the body makes a number of is bounded by what a number of Lua holds; one that stays text is not.
func TestAnIntegerThatTheBodyMakesANumberOfIsBounded(t *testing.T) {
	t.Parallel()
	const bounded, free = "c.Int(\"id\", p.ID, -lua.MaxExact, lua.MaxExact)",
		"c.Int(\"id\", p.ID, math.MinInt64, math.MaxInt64)"
	const tags = "---@key a\n---@arg id int\n"
	for _, row := range []struct{ tags, body, want string }{
		{tags, "local a, id = KEYS[1], tonumber(ARGV[1])\nredis.call('SET', a, id)\n", bounded},
		{tags, "local a, id = KEYS[1], ARGV[1]\nredis.call('SET', a, tonumber(id))\n", bounded},
		{tags, "local a, id = KEYS[1], ARGV[1]\nredis.call('SET', a, id + 1)\n", bounded},
		{tags, "local a, id = KEYS[1], ARGV[1]\nredis.call('SET', a, math.max(id, 1))\n", bounded},
		{tags, "local a, id = KEYS[1], ARGV[1]\nredis.call('SET', a, id)\n", free},
		{tags, "local a, id = KEYS[1], ARGV[1]\nredis.call('SET', a, 'id:' .. id)\n", free},
		{"---@key a\n---@arg id int min=1 max=99\n",
			"local a, id = KEYS[1], tonumber(ARGV[1])\nredis.call('SET', a, id)\n", "c.Int(\"id\", p.ID, 1, 99)"},
		{"---@key a\n---@arg id uint\n",
			"local a, id = KEYS[1], tonumber(ARGV[1])\nredis.call('SET', a, id)\n",
			"c.Uint(\"id\", p.ID, 0, lua.MaxExact)"},
		{"---@key a\n---@args id int max=9\n",
			"local a = KEYS[1]\nfor i = 1, #ARGV do\n  local id = tonumber(ARGV[i])\n" +
				"  redis.call('SADD', a, id)\nend\n", "c.Exact(\"id\", p.IDs[i])"},
		{"---@key a\n---@args id (id int, n int) max=9\n", "local a = KEYS[1]\nfor i = 1, #ARGV, 2 do\n" +
			"  local id, n = ARGV[i], ARGV[i + 1]\n  redis.call('ZADD', a, n + 1, id)\nend\n",
			"\tc.IntAt(&e.ID)\n\t\tc.Exact(\"n\", e.N)\n\t\tc.IntAt(&e.N)\n"},
		{"---@merge max=9\n---@key a\n---@arg id int\n", "local ids = {}\nfor row, a in ipairs(KEYS) do\n" +
			"  local id = tonumber(ARGV[row])\n  redis.call('SET', a, id)\nend\n", bounded},
	} {
		cfg := project(t, map[string]string{"scripts/a.lua": "--- A does it.\n---@contract all-or-nothing\n" +
			"---@retry safe\n" + row.tags + "\n" + row.body})
		cfg.Package = "gen"
		res, err := luagen.Generate(cfg)
		require.NoError(t, err)
		require.False(t, res.Found.HasErrors(), "%s%v", row.body, res.Found)
		text := ""
		for _, file := range res.Changes {
			text += string(file.Text)
		}
		assert.Contains(t, text, row.want, fmt.Sprint(row.tags, row.body))
	}
}
