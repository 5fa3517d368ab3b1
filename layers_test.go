package luatomic_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/luatomic/luatomic/"

// queue, lock and rpc do not import each other. Only packages above them import two of them.
func TestDomainsDoNotKnowEachOther(t *testing.T) {
	t.Parallel()
	domains := []string{"queue", "lock", "rpc"}
	for _, domain := range domains {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+domain+"/...").Output()
		require.NoError(t, err)
		deps := strings.Fields(string(out))
		require.Contains(t, deps, module+domain)
		for _, other := range domains {
			for _, dep := range deps {
				known := dep == module+other || strings.HasPrefix(dep, module+other+"/")
				require.False(t, known && other != domain, "%s depends on %s", domain, dep)
			}
		}
	}
}

// A program that imports one domain embeds and compiles the scripts of that domain alone.
func TestADomainBringsItsOwnScripts(t *testing.T) {
	t.Parallel()
	for _, domain := range []string{"queue", "lock", "rpc"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+domain).Output()
		require.NoError(t, err)
		var scripts []string
		for _, dep := range strings.Fields(string(out)) {
			if strings.HasPrefix(dep, module+"gen") || strings.HasPrefix(dep, module+"scripts") {
				scripts = append(scripts, dep)
			}
		}
		require.Equal(t, []string{module + "gen/" + domain}, scripts)
	}
}
