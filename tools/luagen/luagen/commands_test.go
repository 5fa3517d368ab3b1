package luagen

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The ways to write a command that makes a stream: by its words, by locals, by parameters, and without a known
// subcommand.
var streamMakers = map[string]string{
	"words":      "redis.call('XGROUP', 'CREATE', log, 'g', '$', 'MKSTREAM')\n",
	"lower case": "redis.call('xgroup', 'create', log, 'g', '$', 'MKSTREAM')\n",
	"a local":    "local make = 'CREATE'\nredis.call('XGROUP', make, log, 'g', '$', 'MKSTREAM')\n",
	"a parameter": "local function group(does) redis.call('XGROUP', does, log, 'g', '$', 'MKSTREAM') end\n" +
		"group('CREATE')\n",
	"a command handed": "local function run(a, b) return redis.call(a, b, log, 'g', '$', 'MKSTREAM') end\n" +
		"run('XGROUP', 'CREATE')\n",
	"not known": "redis.call('XGROUP', ARGV[1], log, 'g', '$', 'MKSTREAM')\n",
}

func TestASubcommandThatWritesIsAWriteForEachCheck(t *testing.T) {
	t.Parallel()
	for name, makes := range streamMakers {
		body := "local log, hash = KEYS[1], KEYS[2]\n" + makes
		given := "---@key log stream\n---@key hash hash\n---@arg does string\n"
		rules := func(tags, rest string) []string {
			var found []string
			for _, d := range Vet("a.lua", "--- A does it.\n"+tags+given+"\n"+body+rest) {
				found = append(found, d.Rule)
			}
			return found
		}
		const whole = "---@contract all-or-nothing\n---@retry never\n"
		assert.Contains(t, rules(whole, "redis.call('HGET', hash, 'a')\n"), "W001", name)
		assert.Contains(t, rules(whole, "do return redis.error_reply('LATE it is') end\n"), "W003", name)
		assert.Contains(t, rules("---@readonly\n", ""), "C005", name)
		assert.NotContains(t, rules("---@contract all-or-nothing\n---@retry safe\n", ""), "T001", name)

		s, _ := parseAny("a.lua", body+"redis.call('HGET', hash, 'a')\n")
		line := strings.Count(body, "\n")
		if strings.Contains(makes, "function") {
			line--
		}
		assert.LessOrEqual(t, s.writesAfter(), line, name)

		draft, err := Draft("a.lua", body)
		require.NoError(t, err)
		assert.NotContains(t, draft, "@readonly", name)
		assert.Contains(t, draft, "---@key log stream\n", name)
	}
}

func TestASubcommandThatReadsIsARead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"local log = KEYS[1]\nreturn redis.call('XINFO', 'GROUPS', log)\n",
		"return redis.call('CLUSTER', 'KEYSLOT', 'a')\n", // beside CLUSTER FLUSHSLOT, which writes
	} {
		draft, err := Draft("a.lua", text)
		require.NoError(t, err)
		require.Contains(t, draft, "---@readonly\n")
		s, _ := parseAny("a.lua", text)
		require.Equal(t, s.Body.End.Line, s.writesAfter())
	}
}

// A repeat of a container whose subcommand is not known is judged by this.
func TestSubcommandsThatWriteAreRepeatable(t *testing.T) {
	t.Parallel()
	for name, c := range commands {
		if container, _, isSub := strings.Cut(name, "|"); isSub && c.write {
			assert.Contains(t, repeatable, name)
			joined, _ := lookup(container)
			assert.True(t, joined.write, container)
			if len(c.keys) > 0 {
				assert.Equal(t, joined.keys, c.keys, name)
				assert.Equal(t, joined.types, c.types, name)
			}
		}
	}
}

// One function reads the table, so that no check can ask it by the first word of a container.
func TestOneFileReadsTheTableOfCommands(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	reads := regexp.MustCompile(`\bcommands\[|range commands\b|Keys\(commands\)`)
	seen := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if file == "commands.go" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		seen++
		assert.Empty(t, reads.FindAllString(string(text), -1), "%s: ask lookup, or wholeNames", file)
	}
	require.Greater(t, seen, 50)
}
