package docs_test

import (
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The map of the house names each file of the domains and each internal package, and none that is gone.
func TestTheHouseIsOnItsMap(t *testing.T) {
	t.Parallel()
	_, house, _ := strings.Cut(read(t, "design.md"), "## The house\n\n```\n")
	house, _, _ = strings.Cut(house, "\n```")
	const column = 39
	named := map[string][]string{}
	folder := ""
	for line := range strings.SplitSeq(house, "\n") {
		for _, word := range strings.Fields(line[:min(column, len(line))]) {
			switch at := strings.Index(word, "/"); {
			case strings.HasPrefix(word, "internal/"):
				folder = "internal"
				named[folder] = append(named[folder], strings.TrimPrefix(word, "internal/"))
			case at >= 0:
				folder = strings.TrimSuffix(word, "/")
			default:
				named[folder] = append(named[folder], word)
			}
		}
	}
	for _, folder := range []string{"queue", "lock", "rpc", "internal"} {
		found, err := filepath.Glob("../" + folder + "/" +
			map[bool]string{true: "*", false: "*.go"}[folder == "internal"])
		require.NoError(t, err)
		var names []string
		for _, file := range found {
			if name := strings.TrimSuffix(filepath.Base(file), ".go"); !strings.HasSuffix(name, "_test") &&
				name != "doc" {
				names = append(names, name)
				require.True(t, matchesAny(named[folder], name), "%s/%s is not on the map of docs/design.md",
					folder, name)
			}
		}
		for _, pattern := range named[folder] {
			stands := regexp.MustCompile(`^` + strings.ReplaceAll(pattern, "*", ".*") + `$`)
			require.Regexp(t, "(?m)"+stands.String(), strings.Join(names, "\n"), "%s has no %s", folder, pattern)
		}
	}
}

func matchesAny(patterns []string, name string) bool {
	for _, pattern := range patterns {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return false
}
