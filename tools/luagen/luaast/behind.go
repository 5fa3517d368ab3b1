package luaast

import "strings"

// Behind returns a text that runs head, one line that ends no block, and then the script. The script becomes a function
// of its own, so that the locals of head, which it can name, take none of the 200 that it may have. Its lines stay. One
// that has "..." somewhere has one local less: Lua 5.1 gives a function of any arguments a local named arg.
func Behind(head, script string) string {
	params := "()"
	if strings.Contains(script, "...") {
		params = "(...)"
	}
	end := "end)" + params
	if !strings.HasSuffix(script, "\n") {
		end = "\n" + end // behind a comment
	}
	return head + " return (function" + params + " " + script + end
}
