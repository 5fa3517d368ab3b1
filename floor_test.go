package luatomic_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/compat/plainlock"
	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

var scriptCommand = regexp.MustCompile(`redis\.p?call\('([A-Z_]+)'|write\('([A-Z_]+)'`)

const commandSince = `
local docs = redis.call('COMMAND', 'DOCS', ARGV[1])[2]
for i = 1, #docs, 2 do
  if docs[i] == 'since' then return docs[i + 1] end
end`

// docs/versions.md names what Redis 6.2 lacks for the dialects. The server says since when it has a command.
func TestCommandsOfTheDialectsThatRedis62Lacks(t *testing.T) {
	t.Parallel()
	client, page := luatomictest.Client(t), string(lab.Must(os.ReadFile("docs/versions.md")))
	since := func(command string) string {
		version, err := client.Eval(t.Context(), commandSince, nil, command).Text()
		require.NoError(t, err, command)
		return version
	}
	known := map[string]string{"EVALSHA_RO": since("EVALSHA_RO")}
	lacks := map[string][]string{}
	for dialect, scripts := range map[string][]*lua.Script{
		"actionhero": actionhero.Scripts(), "plainlock": plainlock.Scripts(),
		"redisinaction": redisinaction.Scripts(), "sidekiq": sidekiq.Scripts(),
	} {
		for _, s := range scripts {
			called := []string{}
			for _, found := range scriptCommand.FindAllStringSubmatch(*s.Source, -1) {
				called = append(called, found[1]+found[2])
			}
			require.NotEmpty(t, called, s.Name)
			if s.ReadOnly {
				called = append(called, "EVALSHA_RO")
			}
			for _, command := range called {
				if known[command] == "" {
					known[command] = since(command)
				}
				if known[command] >= "6.3" && !slices.Contains(lacks[dialect], command) {
					lacks[dialect] = append(lacks[dialect], command)
				}
			}
			if strings.Contains(*s.Source, "error({err") && !slices.Contains(lacks[dialect], "error") {
				lacks[dialect] = append(lacks[dialect], "error")
			}
		}
		slices.Sort(lacks[dialect])
	}
	require.Equal(t, map[string][]string{
		"actionhero":    {"EVALSHA_RO", "PEXPIRETIME"},
		"redisinaction": {"EVALSHA_RO", "error"},
		"sidekiq":       {"EVALSHA_RO", "error"},
	}, lacks)
	for _, name := range []string{"`EVALSHA_RO`", "`PEXPIRETIME`", "`error({err = …})`"} {
		require.Contains(t, page, name)
	}
}
