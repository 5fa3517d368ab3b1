package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/queue"
)

type mail struct {
	To string `json:"to"`
}

// A bad name is an error of the push, and so is that of a Kind that NewKind did not make.
func TestKindsWithABadName(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	for _, k := range []queue.Kind[int]{{}, queue.NewKind[int](""), queue.NewKind[int]("a{b")} {
		_, err := k.Push(t.Context(), q, 1)
		require.ErrorIs(t, err, lua.ErrBadName, "%q", k.Name())
		_, err = k.Job(1)
		require.ErrorContains(t, err, "kind", "%q", k.Name())
	}
	require.Zero(t, stats(t, q).Ready)
}

// Each job goes to the handler of its kind, decoded. A body that does not decode and a kind that nobody serves are
// declined, and dead with the reason in the end. Other gets what is left.
func TestKinds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	q, _ := lab.NewQueue(t, &queue.Options{MaxFailures: 2})
	sends, counts := queue.NewKind[mail]("mail.send"), queue.NewKind[int]("count")
	require.Equal(t, "count", counts.Name())
	pushed, err := sends.Push(ctx, q, mail{To: "ann"})
	require.NoError(t, err)
	require.Equal(t, 1, pushed.Ready)
	typed, err := counts.Job(7)
	require.NoError(t, err)
	typed.ID = "seven"
	lab.Push(t, q, typed, queue.Job{ID: "broken", Kind: "count", Body: []byte(`"x"`)},
		queue.Job{ID: "unknown", Kind: "nobody"}, queue.Job{ID: "none"})

	mux := &queue.Mux{}
	var to []string
	sends.Serve(mux, func(context.Context, mail, *queue.Delivery) error { return errors.New("replaced below") })
	sends.Serve(mux, func(_ context.Context, in mail, _ *queue.Delivery) error { to = append(to, in.To); return nil })
	var number int
	counts.Serve(mux, func(_ context.Context, in int, d *queue.Delivery) error {
		require.Equal(t, "seven", d.ID)
		number = in
		return nil
	})
	opts := &queue.ConsumeOptions{Drain: true, Concurrency: 1, Declined: time.Millisecond}
	out, err := q.Consume(ctx, opts, mux.Handle)
	require.NoError(t, err)
	require.Equal(t, 2, out.Acked)
	require.Equal(t, 3, out.Dead)
	require.Equal(t, []string{"ann"}, to)
	require.Equal(t, 7, number)
	dead, err := q.Peek(ctx, queue.Dead, 0, 10)
	require.NoError(t, err)
	reasons, failures := map[string]string{}, map[string]int{}
	for _, d := range dead {
		reasons[d.ID], failures[d.ID] = d.Reason, d.Failures
	}
	require.Contains(t, reasons["broken"], `job of kind "count": the body is not a int`)
	require.Contains(t, reasons["unknown"], `no handler serves this kind of job: "nobody"; serve it with Kind.Serve`)
	require.Equal(t, map[string]int{"broken": 0, "unknown": 0, "none": 0}, failures, "none has begun")

	_, err = q.Requeue(ctx)
	require.NoError(t, err)
	mux.Other = func(context.Context, *queue.Delivery) error { return nil }
	out, err = q.Consume(ctx, opts, mux.Handle)
	require.NoError(t, err)
	require.Equal(t, 2, out.Acked)
}

// What cannot be encoded is an error of the push, with the kind. JSON would change a string that is not UTF-8.
func TestKindThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	_, err := queue.NewKind[chan int]("pipe").Push(t.Context(), q, nil)
	require.ErrorContains(t, err, `job of kind "pipe": a chan int cannot be encoded`)
	_, err = queue.NewKind[map[string]string]("text").Push(t.Context(), q, map[string]string{"name": "Jos\xe9"})
	require.ErrorContains(t, err, `job of kind "text": a map[string]string cannot be encoded: a string in it is not`)
	require.NotContains(t, err.Error(), "Jos")
	_, err = queue.NewKind[[]byte]("bytes").Push(t.Context(), q, []byte("Jos\xe9"))
	require.NoError(t, err)
	require.Equal(t, 1, lab.Must(q.Stats(t.Context())).Ready)
}

type reversed struct{}

func (reversed) Marshal(any) ([]byte, error) { return []byte("encoded"), nil }
func (reversed) Unmarshal(data []byte, v any) error {
	*v.(*string) = string(data) + ", decoded"
	return nil
}

// A kind may have its own encoding.
func TestKindWithACodec(t *testing.T) {
	t.Parallel()
	q, _ := lab.NewQueue(t, nil)
	kind := queue.NewKind[string]("own").WithCodec(reversed{})
	_, err := kind.Push(t.Context(), q, "given")
	require.NoError(t, err)
	mux, got := &queue.Mux{}, make(chan string, 1)
	kind.Serve(mux, func(_ context.Context, in string, _ *queue.Delivery) error { got <- in; return nil })
	_, err = q.Consume(t.Context(), &queue.ConsumeOptions{Drain: true}, mux.Handle)
	require.NoError(t, err)
	require.Equal(t, "encoded, decoded", lab.Soon(t, 20*time.Second, "the job", got))
}

// A nil handler ends the service of a kind: its jobs are declined, and go to Other where that is set.
func TestAKindIsServedNoLonger(t *testing.T) {
	t.Parallel()
	ctx, k, mux := t.Context(), queue.NewKind[int]("count"), &queue.Mux{}
	job := lab.Must(k.Job(1))
	d := &queue.Delivery{Body: job.Body, Details: queue.Details{Kind: "count"}}
	k.Serve(mux, func(context.Context, int, *queue.Delivery) error { return nil })
	require.NoError(t, mux.Handle(ctx, d))
	k.Serve(mux, nil)
	require.ErrorIs(t, mux.Handle(ctx, d), queue.ErrUnknownKind)
	mux.Other = func(context.Context, *queue.Delivery) error { return nil }
	require.NoError(t, mux.Handle(ctx, d))
}
