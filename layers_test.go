package luatomic_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/luatomic/luatomic/"

// arrows has every package that imports another one of this module, and what it imports, floor by floor: a line names
// packages of lines above it, or such that import nothing of the module. "." is the root.
const arrows = `
internal/wire: internal/clock
lua: internal/clock internal/keys internal/send internal/show
luatomictest/luacover: internal/send

gen/limit: lua
gen/lock: lua
gen/queue: lua
gen/rpc: lua
internal/keeper: internal/send lua
internal/servers: internal/keys internal/send lua
internal/notify: internal/clock internal/send internal/servers
internal/operate: internal/servers lua
luatomictest: internal/launch internal/show luatomictest/internal/ready luatomictest/luacover
luatomictest/withserver: luatomictest luatomictest/internal/ready

limit: gen/limit internal/clock internal/keeper internal/keys internal/send lua
limit/limithttp: limit
lock: gen/lock internal/calls internal/clock internal/keeper internal/keys internal/notify internal/send internal/servers lua
lock/locktest: internal/launch lock luatomictest
lock/quorum: gen/lock internal/calls internal/clock internal/keeper internal/keys internal/send lock lua
queue: gen/queue internal/clock internal/decline internal/exact internal/keeper internal/keys internal/notify internal/send internal/servers internal/show lua
rpc: gen/rpc internal/clock internal/exact internal/keys internal/notify internal/send internal/servers internal/show internal/wire lua

compat/actionhero/internal/script: lua
compat/actionhero: compat/actionhero/internal/script internal/clock internal/exact internal/keeper internal/notify internal/send internal/servers lua
compat/plainlock/internal/script: lua
compat/plainlock: compat/plainlock/internal/script internal/calls internal/clock internal/keeper internal/keys internal/notify internal/send internal/servers lua
compat/redisinaction/internal/script: lua
compat/redisinaction: compat/redisinaction/internal/script internal/clock internal/decline internal/exact internal/keeper internal/send lua
compat/sidekiq/internal/script: lua
compat/sidekiq: compat/sidekiq/internal/script internal/clock internal/decline internal/exact internal/keys internal/send lua

.: gen/limit gen/lock gen/queue gen/rpc internal/operate internal/send internal/servers lock lua queue rpc
observe: internal/send internal/servers internal/show lock lua queue rpc
web: . compat/sidekiq internal/exact internal/keys internal/operate internal/send internal/servers internal/show lock lua queue rpc

tools/luagen/luagen: tools/internal/spelling tools/luagen/luaast
tools/luagen/luacover: luatomictest/luacover tools/luagen/luaast
tools/luagen/luaprove: tools/luagen/luaast tools/luagen/luagen
tools/luagen/precision: tools/luagen/luagen
tools/luagen: internal/launch internal/show luatomictest/luacover tools/internal/spelling tools/luagen/luaast tools/luagen/luacover tools/luagen/luagen tools/luagen/luaprove
tools/luatomic: . compat/actionhero compat/plainlock compat/redisinaction compat/sidekiq gen/queue internal/calls internal/clock internal/exact internal/keys internal/launch internal/operate internal/servers internal/show limit lock lua queue rpc testdata tools/internal/spelling web

internal/testkit/drill: compat/sidekiq internal/send internal/testkit/drill/history lock lua queue rpc
internal/testkit/lab: internal/keys internal/send lock lua luatomictest queue rpc
internal/testkit/canary: internal/testkit/lab lock lua queue rpc
internal/testkit/scriptcase: . compat/actionhero compat/plainlock compat/redisinaction compat/sidekiq gen/limit gen/lock gen/queue gen/rpc internal/testkit/lab lua luatomictest queue

examples/calls: rpc
examples/guarded: . lua
examples/inventory: lua
examples/mailqueue: lua queue
examples/nightly: .
examples/ratelimit: lua
examples/webhook: lua
examples/workers: .
`

// The imports between packages are those of the list, and none runs up.
func TestImportsBetweenPackagesAreListed(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}}: {{join .Imports " "}}`, "./...", "./testdata").Output()
	require.NoError(t, err)
	listed, below := map[string]string{}, map[string]bool{}
	for line := range strings.Lines(arrows) {
		if name, imports, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			require.NotContains(t, listed, name)
			listed[name] = imports
		}
	}
	for line := range strings.Lines(string(out)) {
		name, imports, _ := strings.Cut(strings.TrimSpace(line), ":")
		var own []string
		for path := range strings.FieldsSeq(imports) {
			if name, ok := ownName(path); ok {
				own = append(own, name)
			}
		}
		name, _ = ownName(name)
		require.Equal(t, listed[name], strings.Join(own, " "), "imports of %s: name them in layers_test.go", name)
		below[name] = len(own) == 0
		delete(listed, name)
	}
	require.Empty(t, listed, "these packages are gone")
	for line := range strings.Lines(arrows) {
		name, imports, _ := strings.Cut(strings.TrimSpace(line), ": ")
		for other := range strings.FieldsSeq(imports) {
			require.True(t, below[other], "%s imports %s, which stands on no floor below it", name, other)
		}
		below[name] = true
	}
}

// ownName is a package of this module by the folder.
func ownName(path string) (name string, own bool) {
	if path+"/" == module {
		return ".", true
	}
	return strings.CutPrefix(path, module)
}

// A program that imports one domain compiles no other, and embeds the scripts of that domain alone.
func TestADomainBringsItsOwnScripts(t *testing.T) {
	t.Parallel()
	domains := []string{"queue", "lock", "rpc", "limit"}
	for _, domain := range domains {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+domain).Output()
		require.NoError(t, err)
		var found []string
		for path := range strings.FieldsSeq(string(out)) {
			if name, own := ownName(path); own && (slices.Contains(domains, name) || strings.HasPrefix(name, "gen/")) {
				found = append(found, name)
			}
		}
		require.Equal(t, []string{"gen/" + domain, domain}, found)
	}
}
