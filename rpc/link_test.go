package rpc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A link whose server is in doubt is not known to be anywhere, although its connection is good, until both channels are
// confirmed again. Else a call that finds no subscriber while the slot moves takes live nodes for dead ones.
func TestLinkInDoubtIsNotConfirmed(t *testing.T) {
	t.Parallel()
	l := &link{channels: [2]string{"own", "all"}}
	require.True(t, l.movedWithin(time.Hour), "before the first confirmation")
	require.False(t, l.confirm("own", "a", false))
	require.True(t, l.confirm("all", "a", false))
	require.False(t, l.movedWithin(time.Hour))

	l.doubt()
	require.True(t, l.movedWithin(time.Hour))
	require.Zero(t, l.age())
	require.False(t, l.confirm("own", "a", false))
	require.True(t, l.confirm("all", "a", false), "it is announced again")
	require.False(t, l.movedWithin(time.Hour), "it is where it was")

	l.doubt()
	l.confirm("own", "b", true)
	require.True(t, l.confirm("all", "b", true))
	require.True(t, l.movedWithin(time.Hour), "the nodes follow later")
}
