package actionhero_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/luatomictest"
)

// In the callback era a failure is a response, also between Go nodes, whose calls carry the id of the promise era
// too.
func TestFailuresAreAnswersInTheCallbackEra(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	opts := &actionhero.Options{Era: actionhero.Callback, Methods: map[string]int{"api.fails": 0}}
	a, b := newNode(t, client, ch, opts), newNode(t, client, ch, opts)
	require.NoError(t, b.Handle("api.fails", func(context.Context, *actionhero.Request) (any, error) {
		return nil, errors.New("no")
	}))
	_, err := a.DoCluster(t.Context(), "api.fails", nil, "")
	require.ErrorIs(t, err, actionhero.ErrRemote)
}

// A call that the end of its node, or its handler, leaves unfinished has not failed, and its caller waits to the end.
func TestACallThatIsLeftHasNoResponse(t *testing.T) {
	t.Parallel()
	for name, stops := range map[string]bool{"by the handler": false, "by the end of Run": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
			opts := &actionhero.Options{Era: actionhero.Callback, Methods: map[string]int{"api.left": 0}}
			a := newNode(t, client, ch, opts)
			o := *opts
			o.Channel = ch
			b := actionhero.NewNode(client, &o)
			running, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- b.Run(running) }()
			require.NoError(t, b.Ready(t.Context()))
			require.NoError(t, b.Handle("api.left", func(ctx context.Context, _ *actionhero.Request) (any, error) {
				if !stops {
					return nil, fmt.Errorf("no time: %w", actionhero.ErrUnanswered)
				}
				stop()
				<-ctx.Done()
				return nil, ctx.Err()
			}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := a.DoCluster(ctx, "api.left", nil, "")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			stop()
			require.ErrorIs(t, <-ended, context.Canceled)
		})
	}
}

func TestACallHasBothIDsAndAList(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	p := newTap(t, client, ch, responses("old", "requestId", `["v",null]`))
	n := newNode(t, client, ch, &actionhero.Options{ServerID: "go", Era: actionhero.Callback,
		Methods: map[string]int{"api.x": 0}})
	r, err := n.DoCluster(t.Context(), "api.x", nil, "")
	require.NoError(t, err)
	require.Equal(t, `["v",null]`, string(r.Raw))
	var v string
	require.NoError(t, r.Decode(&v))
	require.Equal(t, "v", v)
	m := p.all("do", 1)[0]
	require.NotEmpty(t, m.RequestID)
	require.Equal(t, m.RequestID, m.MessageID)
	require.Equal(t, "[]", string(m.Args), "null ends the process of an old node")
	require.Nil(t, m.ConnectionID)
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Equal(t, `{"messageType":"do","serverId":"go","serverToken":"change-me",`+
		`"requestId":"`+m.RequestID+`","messageId":"`+m.RequestID+`",`+
		`"method":"api.x","connectionId":null,"args":[]}`, p.received[0])
}

// In the callback era a call of a method that a node does not have ends its process.
func TestUndeclaredMethodsAreNotCalledInTheCallbackEra(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	p := newTap(t, client, ch, nil)
	n := newNode(t, client, ch, &actionhero.Options{Era: actionhero.Callback, Methods: map[string]int{"api.x": 1}})
	for method, args := range map[string][]any{"api.y": {1}, "api.x": nil} {
		_, err := n.DoCluster(t.Context(), method, args, "conn")
		require.ErrorIs(t, err, actionhero.ErrUndeclared)
		_, err = n.Gather(t.Context(), method, args, "", time.Second)
		require.ErrorIs(t, err, actionhero.ErrUndeclared)
	}
	require.NoError(t, n.Publish(t.Context(), "end", nil))
	p.all("end", 1)
	require.Empty(t, p.all("do", 0))
}

// In the promise eras the list is optional. Where it is given, no other name is called: a name that is not a function
// ends the processes. The number of arguments does not.
func TestMethodsAreAListOfWhatMayBeCalledInThePromiseEras(t *testing.T) {
	t.Parallel()
	for _, era := range []actionhero.Era{actionhero.Promise, actionhero.Promise18} {
		client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
		p := newTap(t, client, ch, nil)
		n := newNode(t, client, ch, &actionhero.Options{Era: era, Methods: map[string]int{"api.x": 1}})
		_, err := n.DoCluster(t.Context(), "api.connections.connections", nil, "conn")
		require.ErrorIs(t, err, actionhero.ErrUndeclared)
		_, err = n.Gather(t.Context(), "api.connections.connections", nil, "", time.Second)
		require.ErrorIs(t, err, actionhero.ErrUndeclared)
		require.ErrorIs(t, n.Cast(t.Context(), "api.connections.connections", nil, ""), actionhero.ErrUndeclared)
		require.NoError(t, n.Cast(t.Context(), "api.x", nil, ""))
		free := newNode(t, client, ch, &actionhero.Options{Era: era})
		require.NoError(t, free.Cast(t.Context(), "api.y", nil, ""))
		none := newNode(t, client, ch, &actionhero.Options{Era: era, Methods: map[string]int{}})
		require.ErrorIs(t, none.Cast(t.Context(), "api.y", nil, ""), actionhero.ErrUndeclared)
		var called []string
		for _, m := range p.all("do", 2) {
			called = append(called, m.Method)
		}
		require.Equal(t, []string{"api.x", "api.y"}, called)
	}
}

// The response to a node of the callback era is a list, whatever a handler does.
func TestOldCallersGetLists(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	p := newTap(t, client, ch, nil)
	n := newNode(t, client, ch, &actionhero.Options{Era: actionhero.Callback})
	handlers := map[string]actionhero.Handler{
		"number": func(context.Context, *actionhero.Request) (any, error) { return 3, nil },
		"text":   func(context.Context, *actionhero.Request) (any, error) { return "x", nil },
		"fails":  func(context.Context, *actionhero.Request) (any, error) { return nil, errors.New("no") },
		"panics": func(context.Context, *actionhero.Request) (any, error) { panic("no") },
		"weird":  func(context.Context, *actionhero.Request) (any, error) { return func() {}, nil },
		"raw":    func(context.Context, *actionhero.Request) (any, error) { return json.RawMessage(`{`), nil },
	}
	for name, h := range handlers {
		require.NoError(t, n.Handle("api."+name, h))
		p.say(`{"messageType":"do","serverToken":"change-me","requestId":"` + name + `","method":"api.` + name +
			`","connectionId":null,"args":[]}`)
	}
	want := map[string]string{
		"number": `[3]`, "text": `["x"]`, "fails": `[{}]`, "panics": `[{}]`, "weird": `[{}]`, "raw": `[{}]`,
	}
	for _, m := range p.all("doResponse", len(handlers)) {
		require.Equal(t, want[m.RequestID], string(m.Response), m.RequestID)
		require.Empty(t, m.MessageID)
	}
	luatomictest.Eventually(t, 10*time.Second, "counts", func() bool { return n.Stats().Failed == 4 })
}

func TestFailuresAreSilentInThePromiseEra(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	var mu sync.Mutex
	var reported []string
	n := newNode(t, client, ch, &actionhero.Options{Timeout: time.Second, OnError: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, err.Error())
	}})
	require.NoError(t, n.Handle("api.fails", func(context.Context, *actionhero.Request) (any, error) {
		return nil, errors.New("no")
	}))
	newTap(t, client, ch, nil)
	_, err := n.DoCluster(t.Context(), "api.fails", nil, "")
	require.ErrorIs(t, err, actionhero.ErrTimeout)
	reports := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(reported)
	}
	// The call ends whether the handler has run or not.
	luatomictest.Eventually(t, 20*time.Second, "the failure is reported", func() bool { return len(reports()) > 0 })
	require.Equal(t, []string{"actionhero: api.fails: no"}, reports())
}

// A caller of 18 registers its call after its PUBLISH has returned: an earlier response is lost.
func TestAnswersToEighteenAreHeldBack(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	n := newNode(t, client, ch, &actionhero.Options{Era: actionhero.Promise18, Hold: 200 * time.Millisecond})
	require.NoError(t, n.Handle("api.echo", echo))
	p := newTap(t, client, ch, nil)
	began := time.Now()
	p.say(`{"messageType":"do","serverToken":"change-me","requestId":"1","method":"api.echo","args":[1]}`)
	m := p.all("doResponse", 1)[0]
	require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
	require.Equal(t, "1", m.RequestID)
	require.Equal(t, "[1]", string(m.Response))
}
