package luagen_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

const longHeader = `--- Place adds jobs.
---@contract all-or-nothing  the one write comes last
---@key   ready  list = "q:{$name}"  the jobs, oldest at the head
---@args  job    (id string, due int)  max=10  due: 0 for at once
---@reply (ready int, kind enum(none=0, some=1))  ready: how many there are
---@error TOO_MANY  there are too many

`

const continuedHeader = `--- Place adds jobs.
---@contract all-or-nothing
---  the one write
---            comes last
---@key   ready
---       list
---       = "q:{$name}"
---       the jobs, oldest
---       at the head
---@args  job
---       (id string,
---       due int)
---       max=10
---       due: 0 for at once
---@reply (ready int,
---       kind enum(none=0,
---       some=1))
---       ready: how many there are
---@error TOO_MANY
---       there are too many

`

const continuedBody = `local ready = KEYS[1]
if #ARGV > 20 then
  return redis.error_reply('TOO_MANY jobs')
end
for i = 1, #ARGV, 2 do
  local id, due = ARGV[i], ARGV[i + 1]
  redis.call('RPUSH', ready, id .. due)
end
return {redis.call('LLEN', ready), 1}
`

// A header says the same on one line as on several.
func TestContinuedHeaderIsTheLongOne(t *testing.T) {
	t.Parallel()
	var code []string
	for _, header := range []string{longHeader, continuedHeader} {
		cfg := project(t, map[string]string{"scripts/place.lua": header + continuedBody})
		run(t, cfg)
		text, err := os.ReadFile(filepath.Join(cfg.Out, "place.lua.go"))
		require.NoError(t, err)
		code = append(code, regexp.MustCompile(`SHA = "\w+"|WritesAfter: \d+`).ReplaceAllString(string(text), ""))
	}
	require.Contains(t, code[0], "due: 0 for at once")
	require.Equal(t, code[0], code[1])
}
