package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/gen"
	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// Another program's text in the place of a count would stop each report of the day half-way: the counts before it would
// grow, and the process would leave the list.
func TestATextInThePlaceOfACountStopsNoReport(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), "{"+luatomictest.Namespace(t)+"}"
	for _, text := range []string{"x", "1.5", ""} {
		require.NoError(t, c.HSet(ctx, k+"n", "{q}\nf", text).Err())
		for number := range 2 {
			require.Equal(t, int64(number+1), lab.Must(gen.QueueReport(ctx, c, gen.QueueReportParams{Queues: k + "q",
				Workers: k + "w" + text, About: k + "a" + text, Counts: k + "n", Process: "me",
				Number: int64(number + 1), Lease: time.Minute,
				Entries: []gen.QueueReportEntry{{Queue: "{q}", Processed: 1, Failed: 2}}})))
		}
		require.Equal(t, "4", c.HGet(ctx, k+"n", "{q}\nf").Val(), text)
	}
	require.Equal(t, "6", c.HGet(ctx, k+"n", "{q}\np").Val())
}
