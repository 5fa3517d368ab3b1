package lua_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/lua"
)

func TestOpt(t *testing.T) {
	t.Parallel()
	var absent lua.Opt[int]
	zero, seven := lua.Some(0), lua.Some(7)
	_, present := absent.Get()
	require.False(t, present)
	require.Equal(t, 5, absent.Or(5))
	require.Nil(t, absent.Ptr())
	value, present := zero.Get()
	require.True(t, present, "a zero is a value")
	require.Zero(t, value)
	require.Zero(t, zero.Or(5))
	require.Equal(t, 7, seven.Or(5))
	*seven.Ptr() = 8
	require.Equal(t, 8, seven.Or(5))
}
