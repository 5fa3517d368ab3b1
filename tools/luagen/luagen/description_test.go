package luagen

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Numbered steps and other lists of a header are lists in the Go comment and in the reference.
func TestListsOfADescriptionStayLists(t *testing.T) {
	t.Parallel()
	s := &Script{Stem: "walk", GoName: "Walk", Doc: strings.Split(`Walk walks
in steps.

1. It puts the left foot before the right one.
2. It puts the right foot before
   the left one.
10. It has walked.

What it needs:
- feet
- a way

  as it is

The end.`, "\n")}
	e := &emitter{Script: s}
	e.prose()
	require.Equal(t, `// Walk walks in steps.
//
//  1. It puts the left foot before the right one.
//  2. It puts the right foot before the left one.
// 10. It has walked.
//
// What it needs:
//   - feet
//   - a way
//
//   as it is
//
// The end.
`, e.buf.String())
	require.Contains(t, Reference("Steps", []*Script{s}), `
Walk walks in steps.

1. It puts the left foot before the right one.
2. It puts the right foot before the left one.
10. It has walked.

What it needs:

- feet
- a way

      as it is

The end.
`)
}
