package luagen_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
)

// Chains in which each link names the one before twice are followed once, not 2^n times.
func TestChainsTakeNoTime(t *testing.T) {
	t.Parallel()
	const links = 60
	var helpers, choices, commands strings.Builder
	for i := 1; i <= links; i++ {
		if i == 1 {
			helpers.WriteString("local function g1(k) return redis.call('DEL', k) end\n")
			choices.WriteString("local c = ARGV[1]\nlocal x1 = KEYS[1]\n")
			commands.WriteString("local c = ARGV[1]\nlocal x1 = 'DEL'\n")
			continue
		}
		fmt.Fprintf(&helpers, "local function g%d(k) g%d(k) g%d(k) end\n", i, i-1, i-1)
		fmt.Fprintf(&choices, "local x%d = c and x%d or x%d\n", i, i-1, i-1)
		fmt.Fprintf(&commands, "local x%d = c and x%d or x%d\n", i, i-1, i-1)
	}
	fmt.Fprintf(&helpers, "g%d(KEYS[1])\n", links)
	fmt.Fprintf(&choices, "redis.call('DEL', x%d)\nreturn x%d\n", links, links)
	fmt.Fprintf(&commands, "redis.call(x%d, KEYS[1])\n", links)
	const head = "--- A does it.\n---@contract all-or-nothing\n---@retry safe\n---@key k\n---@arg c " +
		"string\n---@reply string\n\n"
	for _, body := range []string{helpers.String(), choices.String(), commands.String()} {
		for _, text := range []string{body, head + body} {
			start := time.Now()
			luagen.Vet("a.lua", text)
			require.Less(t, time.Since(start), time.Minute, "2^60 steps take a million years")
		}
	}
}
