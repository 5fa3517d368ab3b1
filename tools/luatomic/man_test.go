package main

import (
	"flag"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// read is the text of a page as man shows it, without requests and escapes.
func read(page []string) string {
	var b strings.Builder
	names := strings.NewReplacer(`\&`, "", `\e`, `\`, `\-`, `-`, `\(aq`, `'`, `\(ga`, "`", `\(ha`, `^`, `\(ti`, `~`,
		`\(dq`, `"`)
	for _, line := range page {
		if strings.HasPrefix(line, ".") {
			_, args, _ := strings.Cut(line, " ")
			line = "\n" + strings.ReplaceAll(args, `"`, "")
		}
		b.WriteString(names.Replace(line) + " ")
	}
	return b.String()
}

// Each command, its texts and its flags are on the page.
func TestManPageHasAll(t *testing.T) {
	t.Parallel()
	text := read(manPage("v1", time.Unix(0, 0)))
	for _, c := range commands() {
		_, section, found := strings.Cut(text, "\n"+c.usageLine()+" ")
		require.True(t, found, c.usageLine())
		section, _, _ = strings.Cut(section, "\nluatomic ")
		for _, part := range []string{c.about, c.detail, c.output, c.example} {
			words := strings.Fields(part)
			require.Contains(t, strings.Join(strings.Fields(section), " "), strings.Join(words, " "), c.name)
		}
		c.flagSet().VisitAll(func(f *flag.Flag) {
			name, _ := flagHelp(f)
			if isGlobal(f.Name) {
				section = text
			}
			require.Contains(t, section, "\n"+name+" ", c.name)
		})
	}
	for _, e := range exitCodes {
		require.Contains(t, text, fmt.Sprintf("\n%d %s", e.code, e.means))
	}
}

// No line of a text is taken for a request, and each escape is one that roff knows.
func TestManPageIsEscaped(t *testing.T) {
	t.Parallel()
	request := regexp.MustCompile(`^\.(TH|SH|SS|B|TP|PP|nf|fi)( ("[^"]*"|[^" ]+))*$`)
	known := regexp.MustCompile(`\\(&|e|-|\((aq|ga|ha|ti|dq)|\[u[0-9A-F]{4,6}\])`)
	for _, line := range manPage("v1", time.Unix(0, 0)) {
		require.NotEmpty(t, line)
		if strings.HasPrefix(line, ".") {
			require.Regexp(t, request, line)
			line = strings.TrimPrefix(line, ".")
			require.NotContains(t, strings.ReplaceAll(line, `\-`, ""), "-", line)
			line = strings.ReplaceAll(line, `"`, "")
		}
		require.NotRegexp(t, "[-\\\\'\"`^~]|[^ -~]", known.ReplaceAllString(line, ""))
	}
	for text, want := range map[string]string{
		"a-b":              `a\-b`,
		`printf '\n'`:      `printf \(aq\en\(aq`,
		".SH is a text":    `\&.SH is a text`,
		`"~^` + "`":        `\(dq\(ti\(ha\(ga`,
		"für 漢 \U0001f600": `f\[u00FC]r \[u6F22] \[u1F600]`,
	} {
		var r roff
		r.text(text)
		require.Equal(t, roff{want}, r)
	}
}

func TestMan(t *testing.T) {
	t.Parallel()
	e := &env{t: t}
	c := e.run("man").exits(exitDone)
	require.Regexp(t, `^\.TH LUATOMIC 1 "[A-Z][a-z]+ \d+, \d{4}" "luatomic [^"]+"\n\.SH NAME\nluatomic \\- `,
		c.stdout.String())
	require.Empty(t, c.stderr.String())
	require.Equal(t, `.TH LUATOMIC 1 "January 1, 1970" "luatomic v1"`, manPage("v1", time.Unix(0, 0))[0])
	commit := debug.BuildSetting{Key: "vcs.time", Value: "2026-11-24T03:00:00Z"}
	require.EqualValues(t, 1795489200, builtAt(&debug.BuildInfo{Settings: []debug.BuildSetting{commit}}).Unix())
	require.Contains(t, e.run("man", "push").exits(exitUsage).stderr.String(), "no arguments")
}
