package keeper

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTokensNameEachLease(t *testing.T) {
	t.Parallel()
	one, two := NewTokens(), NewTokens()
	require.NotEqual(t, one.Process(), two.Process())
	first := one.Next()
	require.NotEqual(t, first, one.Next())
	require.True(t, strings.HasPrefix(first, one.Process()+"."))
}
