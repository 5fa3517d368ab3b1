package rpc

import (
	"errors"
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

	l.doubt(nil)
	require.True(t, l.movedWithin(time.Hour))
	require.Zero(t, l.age())
	require.False(t, l.confirm("own", "a", false))
	require.True(t, l.confirm("all", "a", false), "it is announced again")
	require.False(t, l.movedWithin(time.Hour), "it is where it was")

	l.doubt(nil)
	l.confirm("own", "b", true)
	require.True(t, l.confirm("all", "b", true))
	require.True(t, l.movedWithin(time.Hour), "the nodes follow later")
}

// A link that breaks several times, and is up again before its loop has read that, is not down any more. Else the loop
// reports the outage again, and keeps its error for as long as the link works.
func TestABreakThatIsOverIsNoOutage(t *testing.T) {
	t.Parallel()
	l, broken := &link{channels: [2]string{"own", "all"}}, errors.New("EOF")
	l.confirm("own", "a", false)
	require.True(t, l.confirm("all", "a", false))
	require.True(t, l.lose("own"))
	require.False(t, l.lose("all"))
	require.False(t, l.isUp())
	l.confirm("own", "a", true)
	require.True(t, l.confirm("all", "a", true))
	l.doubt(broken)
	require.True(t, l.isUp(), "it was confirmed after the break")

	var of liveness
	of.init()
	require.False(t, of.linkDown(broken, l.isUp))
	require.NoError(t, of.failure())
	l.lose("own")
	l.doubt(broken)
	require.True(t, of.linkDown(broken, l.isUp))
	require.ErrorIs(t, of.failure(), broken)
	require.False(t, of.linkDown(broken, l.isUp), "reported before")
}
