package main

import (
	"flag"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

func manCommand() *command {
	return &command{
		name: "man", args: "",
		about: "Print a man page of all commands.",
		detail: `The page is roff, of the same texts as the help of each command. In a folder man1 of
MANPATH, man luatomic finds it.`,
		output:  "a page for man, mandoc or groff -man",
		example: `luatomic man >luatomic.1; man ./luatomic.1`,
		flags:   func(*flag.FlagSet) {},
		check:   (*session).noArgs,
		run: func(s *session) error {
			info, ok := debug.ReadBuildInfo()
			return s.print(manPage(builtFrom(info, ok).Version, builtAt(info)))
		},
	}
}

// roff are the lines of a man page. Each text that is put into it is escaped.
type roff []string

// builtAt is the time of the commit, or of this print where the build does not know it: man shows the day.
func builtAt(info *debug.BuildInfo) time.Time {
	if info != nil {
		for _, setting := range info.Settings {
			if at, err := time.Parse(time.RFC3339, setting.Value); err == nil && setting.Key == "vcs.time" {
				return at
			}
		}
	}
	return time.Now()
}

// manPage is a page with each command and each of its flags.
func manPage(version string, at time.Time) []string {
	var r roff
	r.macro("TH", "LUATOMIC", "1", at.UTC().Format("January 2, 2006"), "luatomic "+version)
	r.macro("SH", "NAME")
	r = append(r, `luatomic \- `+escaped(purpose))
	r.macro("SH", "SYNOPSIS")
	r.macro("B", synopsis)
	r.macro("SH", "DESCRIPTION")
	r.text(channels)
	r.macro("SH", "OPTIONS")
	r.text("Each command takes these flags, before its name or after it.")
	global := newFlagSet("luatomic")
	newSession(nil, nil).globalFlags(global)
	r.flags(global, func(string) bool { return true })
	r.macro("SH", "COMMANDS")
	for _, c := range commands() {
		r.command(c)
	}
	r.end()
	return r
}

// command is the section of one command, without the flags that all have.
func (r *roff) command(c *command) {
	r.macro("SS", c.usageLine())
	r.text(c.about)
	r.macro("PP")
	r.text(c.detail)
	r.flags(c.flagSet(), func(name string) bool { return !isGlobal(name) })
	r.macro("TP")
	r.macro("B", "output")
	r.text(c.output)
	r.macro("TP")
	r.macro("B", "example")
	r.macro("nf")
	for line := range strings.SplitSeq(c.example, "\n") {
		r.line(escaped(line))
	}
	r.macro("fi")
}

func (r *roff) flags(fs *flag.FlagSet, has func(name string) bool) {
	fs.VisitAll(func(f *flag.Flag) {
		if has(f.Name) {
			name, text := flagHelp(f)
			r.macro("TP")
			r.macro("B", name)
			r.text(text)
		}
	})
}

func (r *roff) end() {
	r.macro("SH", "EXIT STATUS")
	for _, e := range exitCodes {
		r.macro("TP")
		r.macro("B", fmt.Sprint(e.code))
		r.text(e.means)
	}
	r.macro("SH", "ENVIRONMENT")
	for _, e := range [][2]string{
		{"REDIS_URL", "The server, where there is no --redis."},
		{"NO_COLOR", "Not empty: a terminal gets no colours."},
	} {
		r.macro("TP")
		r.macro("B", e[0])
		r.text(e[1])
	}
	r.macro("SH", "SEE ALSO")
	r.text("https://github.com/luatomic/luatomic/blob/main/docs/cli.md")
}

// text adds a paragraph in lines of the width that man pages have.
func (r *roff) text(text string) {
	const width = 78
	line := ""
	for word := range strings.FieldsSeq(escaped(text)) {
		if line != "" && len(line)+1+len(word) > width {
			r.line(line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	r.line(line)
}

// line adds a line that roff does not take for a request.
func (r *roff) line(line string) {
	if strings.HasPrefix(line, ".") {
		line = `\&` + line
	}
	*r = append(*r, line)
}

// macro adds a request and its arguments, in quotes where roff would take them apart.
func (r *roff) macro(name string, args ...string) {
	line := "." + name
	for _, arg := range args {
		if arg = escaped(arg); arg == "" || strings.Contains(arg, " ") {
			arg = `"` + arg + `"`
		}
		line += " " + arg
	}
	*r = append(*r, line)
}

// roffNames are the characters that roff shows as others, or obeys.
var roffNames = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`,
	`"`, `\(dq`)

// escaped is a text that reads and copies as it is written. Characters beyond ASCII are named by their number.
func escaped(text string) string {
	var b strings.Builder
	for _, r := range roffNames.Replace(text) {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\[u%04X]`, r)
		}
	}
	return b.String()
}
