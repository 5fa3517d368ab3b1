//go:build !race

package rpc_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/rpc"
)

// asIs leaves bodies as they are, so that the codec's allocations are not counted.
type asIs struct{}

func (asIs) Marshal(v any) ([]byte, error) {
	body, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("%T is no []byte", v)
	}
	return body, nil
}

func (asIs) Unmarshal(data []byte, v any) error {
	to, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is no *[]byte", v)
	}
	*to = data
	return nil
}

// About half of them are made by go-redis, which reads two messages and two replies.
//
// Not parallel: AllocsPerRun counts those of the whole process. Not under the race detector, which has pools drop at
// random what they keep.
func TestAllocationsOfAnRPC(t *testing.T) {
	name, opts := luatomictest.Namespace(t), &rpc.Options{Codec: asIs{}}
	echo := rpc.NewMethod[[]byte, []byte]("echo")
	lab.Serving(t, echo, luatomictest.Client(t), name, opts, func(_ context.Context, body []byte) ([]byte, error) {
		return body, nil
	})
	caller, body := lab.OpenBus(t, luatomictest.Client(t), name, opts), make([]byte, 32)
	call := func() {
		if _, err := echo.Call(context.Background(), caller, body, nil); err != nil {
			t.Error(err)
		}
	}
	call()
	const most = 48
	n := math.Inf(1)
	for i := 0; i < 50 && n > most; i++ { // a busy machine has some calls share a round trip, and ends idle goroutines
		n = min(n, testing.AllocsPerRun(200, call))
	}
	t.Logf("%v allocations", n)
	require.LessOrEqual(t, n, float64(most))
}
