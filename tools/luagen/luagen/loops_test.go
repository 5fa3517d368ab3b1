package luagen_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// A loop over KEYS that takes ARGV[i + 1] meets each element of a list behind one fixed argument.
func TestLoopsThatCountFromElsewhere(t *testing.T) {
	t.Parallel()
	const head = "--- Put does it.\n---@contract dup-only\n---@retry safe\n---@arg ttl ms min=1\n---@key a\n---@keys " +
		"k max=100\n" +
		"---@args k (n int, v bytes) max=100\n\nlocal a, ttl = KEYS[1], ARGV[1]\nredis.call('GET', a)\n"
	for loop, rules := range map[string][]string{
		"for i = 1, #KEYS - 1 do redis.call('DEL', KEYS[i + 1]) end\n" +
			"for i = 0, #ARGV - 2, 2 do redis.call('SET', a, ARGV[i + 2] .. ARGV[i + 3], 'PX', ttl) end": nil,
		"for i = 1, #KEYS - 1 do redis.call('DEL', KEYS[i + 1], ttl) end\nlocal v = ARGV[#ARGV]": nil,
		"for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[i * 2], 'PX', ttl) end":             {"A002"},
		"for i = 2, #KEYS do redis.call('SET', KEYS[i], ARGV[i + 3], 'PX', ttl) end":             {"A002"},
		"for i = '2', #KEYS do redis.call('SET', KEYS[i], ARGV[i], 'PX', ttl) end":               nil,
	} {
		var found []string
		for _, d := range luagen.Vet("put.lua", head+loop+"\n") {
			if d.Level() == luagen.Error {
				found = append(found, d.Rule)
			}
		}
		require.Equal(t, rules, found, loop)
	}
}
