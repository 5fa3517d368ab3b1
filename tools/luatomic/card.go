package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/luatomic/luatomic/internal/show"
)

// bodyText is how much of a body a terminal gets.
const bodyText = 4000

// card writes a job: JSON, or on a terminal a line for each of its fields, and then its body. The server's time is now.
func (s *session) card(v any, row jobRow, body []byte, now time.Time) error {
	if !s.tables {
		return s.emit(v)
	}
	var lines []string
	field := func(name string, value any) {
		text := show.Message(messageText, fmt.Sprint(value))
		if name = fmt.Sprintf("%-9s", name); s.colours {
			name = coloured(name, bold)
		}
		if text != "" {
			lines = append(lines, name+" "+text)
		}
	}
	field("id", row.ID)
	field("state", row.State)
	if row.At != nil {
		at := time.UnixMilli(*row.At)
		field("at", at.Format(time.RFC3339)+", "+ago(at, now))
	}
	field("kind", row.Kind)
	field("failures", row.Failures)
	field("reason", row.Reason)
	for _, name := range slices.Sorted(maps.Keys(row.Headers)) {
		field("header", show.Cell(cellText, name)+": "+row.Headers[name])
	}
	field("body", fmt.Sprintf("%d bytes", row.Bytes))
	for line := range strings.SplitSeq(strings.TrimSuffix(show.Lines(bodyText, string(body)), "\n"), "\n") {
		lines = append(lines, "  "+line)
	}
	if utf8.RuneCount(body) > bodyText {
		lines = append(lines, "  (cut; through a pipe, as with | cat, it is whole)")
	}
	return s.print(append(lines, ""))
}
