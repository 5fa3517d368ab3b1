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

// The server of the bus does not have the link: it was replaced. It has the link again at once, or only after a new
// subscription, and then other nodes follow later.
func TestALinkThatIsNotCountedMoves(t *testing.T) {
	t.Parallel()
	l := &link{channels: [2]string{"own", "all"}}
	up := func() {
		l.confirm("own", "", true)
		require.True(t, l.confirm("all", "", true))
	}
	up()
	require.False(t, l.movedWithin(time.Hour))
	l.counted(false)
	require.True(t, l.movedWithin(0))
	l.counted(true)
	require.False(t, l.movedWithin(time.Hour))

	l.counted(false)
	up()
	require.True(t, l.movedWithin(time.Hour))
	require.False(t, l.movedWithin(0), "it is over")

	l = &link{channels: l.channels}
	up()
	l.lose("own", true)
	up()
	require.True(t, l.movedWithin(time.Hour), "the connection was replaced since it had no messages")
	l = &link{channels: l.channels}
	up()
	l.lose("own", false)
	up()
	require.False(t, l.movedWithin(time.Hour), "the connection was cut")
}

// A link that breaks several times, and is up again before its loop has read that, is not down any more. Else the loop
// reports the outage again, and keeps its error for as long as the link works.
func TestABreakThatIsOverIsNoOutage(t *testing.T) {
	t.Parallel()
	l, broken := &link{channels: [2]string{"own", "all"}}, errors.New("EOF")
	l.confirm("own", "a", false)
	require.True(t, l.confirm("all", "a", false))
	require.True(t, l.lose("own", false))
	require.False(t, l.lose("all", false))
	require.False(t, l.isUp())
	l.confirm("own", "a", true)
	require.True(t, l.confirm("all", "a", true))
	l.doubt(broken)
	require.True(t, l.isUp(), "it was confirmed after the break")

	var of liveness
	of.init()
	require.False(t, of.linkDown(broken, l.isUp))
	require.NoError(t, of.failure())
	l.lose("own", false)
	l.doubt(broken)
	require.True(t, of.linkDown(broken, l.isUp))
	require.ErrorIs(t, of.failure(), broken)
	require.False(t, of.linkDown(broken, l.isUp), "reported before")
}
