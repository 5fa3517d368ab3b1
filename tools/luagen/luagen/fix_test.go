package luagen_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

const plain = `-- Takes n from the stock.
local stockKey = KEYS[1]
local left = tonumber(redis.call('GET', stockKey) or 0)
if left < tonumber(ARGV[1]) then
  return redis.error_reply('SOLD_OUT only ' .. left)
end
redis.call('LPUSH', KEYS[2], ARGV[2])
for i = 3, #ARGV, 2 do
  local id, body = ARGV[i], ARGV[i + 1]
  redis.call('LPUSH', KEYS[2], id, body)
end
return redis.call('DECRBY', stockKey, ARGV[1])
`

const drafted = `--- Take does what its comments say.
---@contract dup-only  check: what does an error half-way leave behind?
---@retry never  check: may it run twice?
---@key stockKey string
---@key key2 list
---@arg arg1 int
---@arg arg2 string
---@args arg_list (id string, body string) max=1000
---@reply int
---@error SOLD_OUT  check: when?

`

func TestDraftOfAHeader(t *testing.T) {
	t.Parallel()
	text, err := luagen.Draft("take.lua", plain)
	require.NoError(t, err)
	require.Equal(t, drafted+plain, text)
	_, err = luagen.Draft("take.lua", text)
	require.ErrorContains(t, err, "has a header already")
	_, err = luagen.Draft("take.lua", "return (")
	require.ErrorContains(t, err, "S001")
	const all = "return {redis.call('GET', KEYS[1]), redis.call('LLEN', KEYS[2]), 'x'}\n"
	read, err := luagen.Draft("peek_all.lua", all)
	require.NoError(t, err)
	require.Equal(t, "--- PeekAll does what its comments say.\n---@readonly\n---@key key1 string\n---@key key2 list\n"+
		"---@reply (v1 string?, v2 int, v3 string)\n\n"+all, read)
}

func TestFixBindsEntriesAndRenames(t *testing.T) {
	t.Parallel()
	text, err := luagen.Fix("take.lua", drafted+plain)
	require.NoError(t, err)
	require.Contains(t, text,
		"-- Takes n from the stock.\nlocal key2 = KEYS[2]\nlocal arg1, arg2 = ARGV[1], ARGV[2]\nlocal stockKey = KEYS[1]\n")
	require.Contains(t, text, "if left < tonumber(arg1) then")
	require.Contains(t, text, "redis.call('LPUSH', key2, id, body)")
	require.Contains(t, text, "for i = 3, #ARGV, 2 do\n  local id, body = ARGV[i], ARGV[i + 1]")
	require.Empty(t, luagen.Vet("take.lua", text))
	again, err := luagen.Fix("take.lua", text)
	require.NoError(t, err)
	require.Equal(t, text, again)

	renamed, err := luagen.Fix("take.lua", strings.ReplaceAll(drafted, "stockKey", "stock")+plain)
	require.NoError(t, err)
	require.Contains(t, renamed, "local stock = KEYS[1]\nlocal left = tonumber(redis.call('GET', stock) or 0)")
	require.NotContains(t, renamed, "stockKey")
}

func TestFixLeavesWhatItCannotName(t *testing.T) {
	t.Parallel()
	const head = "--- X does it.\n---@contract all-or-nothing\n---@key  job string\n---@arg  n int\n\n"
	for _, body := range []string{
		"local job = 1\nredis.call('SET', KEYS[1], job)\n",      // the name is another's
		"ARGV[1] = 5\nredis.call('SET', 'x', ARGV[1])\n",        // the entry changes
		"local m = n\nredis.call('SET', 'x', ARGV[1], m)\n",     // a global has the name
		"table.remove(ARGV)\nredis.call('SET', 'x', ARGV[1])\n", // the entry can go
	} {
		text, err := luagen.Fix("x.lua", head+body)
		require.NoError(t, err)
		require.Equal(t, head+body, text)
	}
	_, err := luagen.Fix("x.lua", "return 1\n")
	require.ErrorContains(t, err, "has no header")
}
