package exact_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/exact"
)

// texts marshal to themselves: by value, and by pointer alone.
type (
	text    struct{ value string }
	pointed struct{ value string }
)

func (t text) MarshalText() ([]byte, error)     { return []byte(t.value), nil }
func (t *pointed) MarshalText() ([]byte, error) { return []byte(t.value), nil }

// named is written as it is where it is a key of a map, and in its own form elsewhere; both has a form for keys alone.
type (
	named string
	both  struct{ value string }
)

func (named) MarshalText() ([]byte, error)  { return []byte("kept"), nil }
func (b both) MarshalText() ([]byte, error) { return []byte(b.value), nil }
func (both) MarshalJSON() ([]byte, error)   { return []byte(`"kept"`), nil }

type inner struct{ Inside string }

type record struct {
	inner
	Name    string
	Left    string `json:"-"`
	private string
	At      time.Time
	Next    *record
}

const bad = "a\xffb"

func TestTextsThatAreReplacedAreFound(t *testing.T) {
	t.Parallel()
	for _, v := range []any{
		bad, []string{"a", bad}, [1]string{bad}, map[string]int{bad: 1}, map[string]string{"a": bad},
		map[text]int{{bad}: 1}, map[named]int{bad: 1}, map[both]int{{bad}: 1},
		[]any{1, map[string]any{"a": []any{bad}}}, record{Name: bad}, &record{inner: inner{bad}},
		[]*record{{Next: &record{Name: bad}}}, text{bad}, []text{{bad}}, []pointed{{bad}}, &pointed{bad},
		[]*pointed{{bad}},
		json.RawMessage(`"` + bad + `"`), []json.RawMessage{json.RawMessage(`"` + bad + `"`)},
	} {
		encoded, err := json.Marshal(v)
		require.NoError(t, err)
		require.False(t, exact.JSON(v, encoded), "%#v", v)
	}
}

func TestTextsThatAreKeptPass(t *testing.T) {
	t.Parallel()
	escaped := json.RawMessage(`"\ufffd"`)
	for _, v := range []any{
		nil, 1, "a", "\ufffd", `\ufffd`, []byte{0xff}, escaped, []any{nil, escaped, (*record)(nil)},
		struct {
			Raw json.RawMessage
			R   record
		}{escaped, record{Left: bad, private: bad}},
		[]any{escaped, named(bad), both{bad}, map[named]int{"a": 1}, map[*text]int{nil: 1}, map[int]int{1: 1}},
	} {
		encoded, err := json.Marshal(v)
		require.NoError(t, err)
		require.True(t, exact.JSON(v, encoded), "%#v", v)
	}
}
