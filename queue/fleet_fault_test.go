package queue_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/luatomictest"
)

// A user who may not add to a count loses none: only a text in its place begins it anew.
func TestAReportThatMayNotCountKeepsTheCounts(t *testing.T) {
	t.Parallel()
	server, ctx := luatomictest.StartServer(t), t.Context()
	admin := server.Client()
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-hincrby").Err())
	app := server.Client(func(o *redis.Options) { o.Username, o.Password = "app", "pw" })
	require.NoError(t, admin.HSet(ctx, "{k}n", "{q}\np", 7).Err())
	_, err := queuescript.Report(ctx, app, queuescript.ReportParams{Queues: "{k}q", Workers: "{k}w", About: "{k}a",
		Counts: "{k}n", Process: "me", Number: 1, Lease: time.Minute,
		Entries: []queuescript.ReportEntry{{Queue: "{q}", Processed: 1}}})
	require.ErrorIs(t, err, lua.ErrExecutedInPart)
	require.Equal(t, "7", admin.HGet(ctx, "{k}n", "{q}\np").Val())
}

// Another program's text in the place of a count would stop each report of the day half-way: the counts before it would
// grow, and the process would leave the list.
func TestATextInThePlaceOfACountStopsNoReport(t *testing.T) {
	t.Parallel()
	ctx, c, k := t.Context(), luatomictest.Client(t), "{"+luatomictest.Namespace(t)+"}"
	for _, text := range []string{"x", "1.5", "", "9223372036854775807"} {
		require.NoError(t, c.HSet(ctx, k+"n", "{q}\nf", text).Err())
		for number := range 2 {
			require.Equal(t, int64(number+1), lab.Must(queuescript.Report(ctx, c,
				queuescript.ReportParams{Queues: k + "q",
					Workers: k + "w" + text, About: k + "a" + text, Counts: k + "n", Process: "me",
					Number: int64(number + 1), Lease: time.Minute,
					Entries: []queuescript.ReportEntry{{Queue: "{q}", Processed: 1, Failed: 2}}})).Last)
		}
		require.Equal(t, "4", c.HGet(ctx, k+"n", "{q}\nf").Val(), text)
	}
	require.Equal(t, "8", c.HGet(ctx, k+"n", "{q}\np").Val())
}
