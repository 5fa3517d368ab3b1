package exact_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/exact"
)

type embedded struct {
	Names []string `json:"names"`
}

type part struct {
	Of   []int `json:"of"`
	deep []int
}

type answer struct {
	embedded
	Parts []part    `json:"parts"`
	At    time.Time `json:"at,omitzero"`
	One   *part     `json:"one"`
	None  *part     `json:"none"`
	Left  []int     `json:"left,omitempty"`
	Body  []byte    `json:"body"`
	Raw   json.RawMessage
	Map   map[string]int `json:"map"`
}

// Each list is one, wherever it stands. What is missing, is no list or is left out stays so.
func TestEmptyListsAreLists(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]any{
		`{"names":[],"parts":[{"of":[]}],"one":{"of":[]},"none":null,"body":null,"Raw":null,"map":null}`: answer{
			Parts: []part{{deep: nil}}, One: &part{}},
		`{"of":[1]}`: &part{Of: []int{1}},
		`[]`:         []string(nil),
		`null`:       nil,
		`{"a":1}`:    map[string]any{"a": 1},
	} {
		text, err := json.Marshal(exact.FilledLists(v))
		require.NoError(t, err)
		require.JSONEq(t, want, string(text))
	}
	from := answer{}
	exact.FilledLists(from)
	require.Nil(t, from.Names, "a copy is filled")
}
