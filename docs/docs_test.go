// Package docs_test holds the pages and the README to what the code does.
package docs_test

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/redisinaction"
	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lock"
	"github.com/luatomic/luatomic/lock/quorum"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/queue"
)

func TestMain(m *testing.M) { luatomictest.Main(m) }

// pages are the files that readers are sent to.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "../*.md", "../bench/*.md", "../examples/*.md", "../examples/*/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		all = append(all, found...)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// Each row of a table has the cells of its first row, and ends.
func TestRowsOfTablesAreWhole(t *testing.T) {
	t.Parallel()
	cells := regexp.MustCompile(`(^|[^\\\\])\|`)
	for _, page := range pages(t) {
		first, code := 0, false
		for i, line := range strings.Split(read(t, page), "\n") {
			code = code != strings.HasPrefix(line, "```")
			if code || !strings.HasPrefix(line, "|") {
				first = 0
				continue
			}
			n := len(cells.FindAllString(line, -1))
			first = cmp.Or(first, n)
			require.Equal(t, first, n, "%s, line %d", page, i+1)
			require.Equal(t, byte('|'), line[len(line)-1], "%s, line %d", page, i+1)
		}
	}
}

// Every promise names a test; each of those names must be one.
// The other pages have none.
func TestDocsNameRealTests(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	require.NoError(t, filepath.WalkDir("..", func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			source.WriteString(read(t, path))
		}
		return err
	}))
	names := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	for _, page := range pages(t) {
		found := names.FindAllStringSubmatch(read(t, page), -1)
		if page == "guarantees.md" {
			require.Greater(t, len(found), 100, page)
		} else if page != "../CONTRIBUTING.md" {
			require.Empty(t, found, "%s names tests: docs/guarantees.md is for that", page)
		}
		for _, m := range found {
			is := strings.Contains(source.String(), "func "+m[1]+"(t *testing.T)")
			require.True(t, is, "%s names %s, which is no test", page, m[1])
		}
	}
}

// Each error of the on-call page stands behind the text that a log has: its name in Go is in no log.
func TestOnCallHasTheTextsOfErrors(t *testing.T) {
	t.Parallel()
	errs := map[string]error{
		"lua.ErrOutcomeUnknown": lua.ErrOutcomeUnknown, "lua.ErrCrossSlot": lua.ErrCrossSlot,
		"lua.ErrExecutedInPart": lua.ErrExecutedInPart,
		"queue.ErrFull":         queue.ErrFull, "queue.ErrLeaseLost": queue.ErrLeaseLost,
		"queue.ErrNameHeld": queue.ErrNameHeld, "queue.ErrDataLost": queue.ErrDataLost,
		"queue.ErrLayout": queue.ErrLayout, "queue.ErrTokenReused": queue.ErrTokenReused,
		"lock.ErrLost": lock.ErrLost, "lock.ErrRevoked": lock.ErrRevoked,
		"lock.ErrLimit": lock.ErrLimit, "lock.ErrNotALock": lock.ErrNotALock,
		"lock.ErrNotReplicated": lock.ErrNotReplicated,
		"quorum.ErrNoQuorum":    quorum.ErrNoQuorum, "quorum.ErrClocks": quorum.ErrClocks,
		"sidekiq.ErrQueueRefused": sidekiq.ErrQueueRefused, "sidekiq.ErrTakenBack": sidekiq.ErrTakenBack,
		"sidekiq.ErrTokenReused":        sidekiq.ErrTokenReused,
		"redisinaction.ErrQueueRefused": redisinaction.ErrQueueRefused,
		"redisinaction.ErrForeignScore": redisinaction.ErrForeignScore,
	}
	page := read(t, "on-call.md")
	named := regexp.MustCompile("`([^`]+)` \\(`(\\w+\\.Err\\w+)`\\)").FindAllStringSubmatch(page, -1)
	for _, m := range named {
		if err := errs[m[2]]; m[2] != "lua.ErrWrongType" && m[2] != "lua.ErrNotLoaded" { // lua.Error has their texts
			require.ErrorContains(t, err, m[1], m[2])
		}
	}
	require.Len(t, regexp.MustCompile(`\bErr[A-Z]`).FindAllString(page, -1), len(named), "an error without its text")
}

// The promises of the README are those of the page that has their tests.
func TestReadmeLinksToThePromises(t *testing.T) {
	t.Parallel()
	require.Contains(t, read(t, "../README.md"), "](docs/guarantees.md)")
	require.Contains(t, read(t, "guarantees.md"), "\n| promise | test |\n")
}

// A link inside the repository leads to a file, and its fragment to a heading of that file.
func TestLinksLead(t *testing.T) {
	t.Parallel()
	links, code := regexp.MustCompile(`\]\(([^)\s]+)\)`), regexp.MustCompile("(?s)```.*?```")
	for _, page := range pages(t) {
		text := code.ReplaceAllString(read(t, page), "")
		for _, m := range links.FindAllStringSubmatch(text, -1) {
			path, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			require.FileExists(t, inFolder(target), "%s links to %s", page, m[1])
			if fragment != "" {
				require.Contains(t, headings(read(t, target)), fragment, "%s links to %s", page, m[1])
			}
		}
	}
}

// inFolder is the file itself, or what a reader of a folder sees.
func inFolder(path string) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		found, _ := filepath.Glob(filepath.Join(path, "*.go"))
		return append(found, path)[0]
	}
	return path
}

// headings are the fragments that the headings of a page can be linked by.
func headings(text string) (all []string) {
	not := regexp.MustCompile(`[^a-z0-9 _-]`)
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' {
			title = not.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			all = append(all, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return all
}
