package operate

import (
	"regexp"
	"strings"

	"github.com/luatomic/luatomic/lua"
)

var call = regexp.MustCompile(`\w\('([A-Z]+)'`)

// Commands returns the commands that the scripts call. In a script a text in capitals that is the first argument of a
// call is a command, also where a local function passes it to redis.call.
func Commands(scripts []*lua.Script) []string {
	var all []string
	for _, s := range scripts {
		for _, m := range call.FindAllStringSubmatch(*s.Source+s.Guarded.String(), -1) {
			if m[1] != "SPUBLISH" { // in a cluster only
				all = append(all, strings.ToLower(m[1]))
			}
		}
	}
	return all
}
