// Package luahook is where a test program looks into the scripts that package lua sends: coverage, traces, mutants. A
// program without tests sets nothing here and pays one comparison a call.
package luahook

// Rewrite returns the text that runs in place of a script, named by its digest. It is set before the first call, and
// never changes. Lines of the result are lines of the script; at names the place of a line in the sources.
var Rewrite func(name, sha, source string, at func(line int) string) string

// Guard does the same with the text of a guard, which the script follows.
var Guard func(sha, source string) string

// Client is called before each call, with the client that sends it. It is set before the first call, and never changes.
var Client func(client any)
