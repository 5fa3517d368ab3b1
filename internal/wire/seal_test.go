package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that has none of the keys can neither ask nor answer. A frame signed with either of two keys is accepted,
// so keys are changed while nodes run.
func TestFramesProveTheirOrigin(t *testing.T) {
	t.Parallel()
	sealer := func(bus string, keys ...string) *Sealer {
		s := &Sealer{Bus: bus}
		for _, k := range keys {
			s.Keys = append(s.Keys, []byte(k))
		}
		return s
	}
	old, both, other := sealer("b", "old"), sealer("b", "new", "old"), sealer("b", "other")
	notice := &Notice{Kind: Subscribed, Texts: []string{"x"}}
	sealed := string(old.Seal(notice.Encode()))
	plain, err := both.Open(sealed)
	require.NoError(t, err)
	require.Equal(t, string(notice.Encode()), plain)
	frame, err := Decode(sealed, both)
	require.NoError(t, err)
	require.Equal(t, notice, frame)
	for _, s := range []*Sealer{other, sealer("another bus", "old")} {
		_, err = Decode(sealed, s)
		require.ErrorIs(t, err, ErrForged)
	}
	for i := range sealed {
		bent := []byte(sealed)
		bent[i] ^= 1
		_, err = both.Open(string(bent))
		require.ErrorIs(t, err, ErrForged, "byte %d", i)
	}
	_, err = both.Open("short")
	require.ErrorIs(t, err, ErrForged)
}
