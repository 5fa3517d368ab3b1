package send

// RewriteScript returns the text that runs in place of a script, named by its digest. It is set before the first call,
// and never changes. Lines of the result are lines of the script; at names the place of a line in the sources.
var RewriteScript func(name, sha, source string, at func(line int) string) string

// RewriteGuard does the same with the text of a guard, which the script follows.
var RewriteGuard func(sha, source string) string

// SeeClient is called before each call, with the client that sends it. It is set before the first call, and never
// changes.
var SeeClient func(client any)
