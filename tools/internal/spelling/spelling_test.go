package spelling

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"push", "promote", "stats", "top", "hash"}
	for word, want := range map[string]string{
		"push": "push", "pusj": "push", "psuh": "push", "status": "stats", "promot": "promote", "demo": "", "": "",
		"nope": "", "tpo": "top", "puhs": "push", "has": "hash", "prmoote": "promote", "sattss": "stats",
	} {
		require.Equal(t, want, Nearest(word, names), word)
	}
}
