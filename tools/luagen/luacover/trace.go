package luacover

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/luatomic/luatomic/luatomictest/luacover"
	"github.com/luatomic/luatomic/tools/luagen/luaast"
)

// tracer stands on the script's first line. luagen_from reports a call with its line and arguments and hands these on;
// luagen_to reports the reply and the time. The call itself stands in the script, so that its error has its line.
const tracer = `local luagen_from,luagen_to do ` +
	`local tell,at=redis.pcall,0 ` +
	`local function clock() local t=tell('TIME') return t[1]%%100000*1000000+t[2] end ` +
	`local function show(v) if type(v)=='string' then ` +
	`return (string.gsub(string.format('%%q',#v>80 and string.sub(v,1,77)..'...' or v),'\n','n')) end ` +
	`if type(v)~='table' then return tostring(v) end if v.err then return 'error '..v.err end if v.ok then return v.ok end ` +
	`local t={} for i=1,math.min(#v,10) do t[i]=show(v[i]) end if #v>10 then t[11]='... '..#v..' in all' end ` +
	`return '{'..table.concat(t,' ')..'}' end ` +
	`local function list(...) local t={...} for i=1,math.min(#t,20) do t[i]=show(t[i]) end return table.concat(t,' ',1,math.min(#t,20)) end ` +
	`tell('PUBLISH','%[1]s','%[2]s KEYS '..show(KEYS)..' ARGV '..show(ARGV)) ` +
	`luagen_from=function(line,...) tell('PUBLISH','%[1]s','  '..line..': '..list(...)) at=clock() return ... end ` +
	`luagen_to=function(v) local us=clock()-at tell('PUBLISH','%[1]s','    '..us..' us: '..show(v)) return v end end`

// runs are the functions that run commands; Valkey has the table redis under the name server, too.
var runs = map[string]bool{"redis.call": true, "redis.pcall": true, "server.call": true, "server.pcall": true}

// blind reports in place of the calls why there are none.
const blind = ` redis.pcall('PUBLISH','%[1]s','  %[2]s: what it calls is not known: with reports it has '..%[3]q)`

// Trace returns the script with each redis.call and redis.pcall reported. One that has no room for reports tells so
// instead; one that does not parse comes back as it is. place names a line of the source.
func Trace(name, source string, place func(line int) string) string {
	chunk, err := luaast.Parse(source)
	if err != nil {
		return source
	}
	type insertion struct {
		at   int
		text string
	}
	var all []insertion
	luaast.Inspect(chunk.Body, func(n, _ luaast.Node) bool {
		c, ok := n.(*luaast.Call)
		if !ok || len(c.Args) == 0 {
			return true
		}
		fn := c.Fn.Extent()
		if !runs[source[fn.Start.Off:fn.End]] || source[c.End-1] != ')' {
			return true
		}
		all = append(all,
			insertion{c.Start.Off, "luagen_to("},
			insertion{c.Args[0].Extent().Start.Off, fmt.Sprintf("luagen_from('%s',", place(c.Start.Line))},
			insertion{c.End - 1, ")"}, insertion{c.End, ")"})
		return true
	})
	sort.SliceStable(all, func(i, j int) bool { return all[i].at < all[j].at })
	var b strings.Builder
	at := 0
	for _, in := range all {
		b.WriteString(source[at:in.at] + in.text)
		at = in.at
	}
	b.WriteString(source[at:])
	head := fmt.Sprintf(tracer, luacover.TraceChannel, name)
	traced := luaast.Behind(head, b.String())
	var full *luaast.Error
	if _, err := luaast.Parse(traced); errors.As(err, &full) {
		return luaast.Behind(head+fmt.Sprintf(blind, luacover.TraceChannel, name, full.Message), source)
	}
	return traced
}

// Tracer answers a test program as Answer does, so that the scripts of these names publish what they do; without names,
// all do.
func Tracer(names ...string) func(luacover.Ask) string {
	return func(ask luacover.Ask) string {
		if ask.Name == "" || len(names) > 0 && !slices.Contains(names, ask.Name) {
			return ask.Source
		}
		return Trace(ask.Name, ask.Source, func(line int) string { return ask.Places[line-1] })
	}
}
