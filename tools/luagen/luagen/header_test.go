package luagen_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/tools/luagen/luagen"
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

// The comment that a licence asks for stands above all else.
func TestACommentMayStandAboveTheHeader(t *testing.T) {
	t.Parallel()
	const licence = "-- Copyright 2026 The Authors.\n--\n-- SPDX-License-Identifier: MIT\n"
	for above, ok := range map[string]bool{
		licence: true, licence + "\n": true, "-- @key  a list\n": false,
		"-- @kye  a list\n": false, "\n": false, "local x = 1\n": false, licence + "local x = 1\n": false,
	} {
		_, found := luagen.Parse("place.lua", above+longHeader+continuedBody)
		require.Equal(t, ok, len(found) == 0, "%s%v", above, found)
	}
	require.Empty(t, luagen.Vet("place.lua", licence+longHeader+continuedBody))
	found := luagen.Vet("place.lua", licence+longHeader+"redis.call('DEL', nothing)\n"+continuedBody)
	at := slices.IndexFunc(found, func(d luagen.Diagnostic) bool { return d.Rule == "G002" })
	require.GreaterOrEqual(t, at, 0, "%v", found)
	require.Equal(t, strings.Count(licence+longHeader, "\n")+1, found[at].Pos.Line)
}
