package actionhero_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// tap is a plain subscriber of a channel: it records messages, and answers calls if it has a function for that.
type tap struct {
	t       *testing.T
	client  *redis.Client
	channel string

	mu       sync.Mutex
	received []string
}

// message is a message of the channel with its plain JSON fields.
type message struct {
	MessageType, ServerID, ServerToken, RequestID, MessageID, Method string
	ConnectionID                                                     *string
	Args, Response                                                   json.RawMessage
}

// newTap starts a tap; answer, if set, returns the messages to publish after one.
func newTap(t *testing.T, client *redis.Client, channel string, answer func(m message) []string) *tap {
	t.Helper()
	p := &tap{t: t, client: client, channel: channel}
	sub := client.Subscribe(t.Context(), channel)
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for raw := range sub.Channel() {
			p.mu.Lock()
			p.received = append(p.received, raw.Payload)
			p.mu.Unlock()
			var m message
			if answer == nil || json.Unmarshal([]byte(raw.Payload), &m) != nil {
				continue
			}
			for _, text := range answer(m) {
				_ = client.Publish(context.Background(), channel, text).Err()
			}
		}
	}()
	t.Cleanup(func() {
		_ = sub.Close()
		<-done
	})
	return p
}

func (p *tap) say(text string) {
	p.t.Helper()
	require.NoError(p.t, p.client.Publish(p.t.Context(), p.channel, text).Err())
}

// all returns the recorded messages of a type, once there are n.
func (p *tap) all(messageType string, n int) []message {
	p.t.Helper()
	var found []message
	luatomictest.Eventually(p.t, 20*time.Second, "messages of type "+messageType, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		found = found[:0]
		for _, text := range p.received {
			var m message
			if json.Unmarshal([]byte(text), &m) == nil && m.MessageType == messageType {
				found = append(found, m)
			}
		}
		return len(found) >= n
	})
	return found
}

// responses answers every call as a node of that name, with its id field.
func responses(server, field, response string) func(message) []string {
	return func(m message) []string {
		if m.MessageType != "do" {
			return nil
		}
		id := m.RequestID
		if field == "messageId" {
			id = m.MessageID
		}
		return []string{`{"messageType":"doResponse","serverId":"` + server + `","serverToken":"change-me","` + field +
			`":"` + id + `","response":` + response + `}`}
	}
}

// newNode runs a node on the namespace's channel.
func newNode(t *testing.T, client redis.UniversalClient, channel string, opts *actionhero.Options) *actionhero.Node {
	t.Helper()
	var o actionhero.Options
	if opts != nil {
		o = *opts
	}
	o.Channel = channel
	n := actionhero.NewNode(client, &o)
	runNode(t, n)
	return n
}

func echo(_ context.Context, r *actionhero.Request) (any, error) { return r.Args, nil }

func TestTwoGoNodes(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	for _, era := range []actionhero.Era{actionhero.Promise, actionhero.Promise18, actionhero.Callback} {
		opts := &actionhero.Options{Era: era, Methods: map[string]int{"api.add": 2}}
		a, b := newNode(t, client, ch+era.String(), opts), newNode(t, client, ch+era.String(), opts)
		require.NoError(t, b.Handle("api.add", func(_ context.Context, r *actionhero.Request) (any, error) {
			var x, y int
			err := r.Bind(&x, &y)
			return x + y, err
		}))
		r, err := a.DoCluster(t.Context(), "api.add", []any{2, 40}, "")
		require.NoError(t, err, era)
		require.Equal(t, b.ServerID(), r.ServerID)
		var sum int
		require.NoError(t, r.Decode(&sum))
		require.Equal(t, 42, sum)
	}
}

func TestBadNamesAreNotSent(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	p := newTap(t, client, ch, nil)
	n := newNode(t, client, ch, nil)
	ctx := t.Context()
	for _, method := range []string{"", "api", "api.", "x.y", "apix.y", "api..x", "api.x."} {
		_, err := n.DoCluster(ctx, method, nil, "")
		require.ErrorIs(t, err, actionhero.ErrBadName, method)
		require.ErrorIs(t, n.Handle(method, echo), actionhero.ErrBadName, method)
	}
	for _, connection := range []string{"constructor", "__proto__", "toString"} {
		_, err := n.DoCluster(ctx, "api.x", nil, connection)
		require.ErrorIs(t, err, actionhero.ErrBadName)
		require.ErrorIs(t, n.Own(connection), actionhero.ErrBadName)
	}
	require.ErrorIs(t, n.Own(""), actionhero.ErrBadName)
	for _, messageType := range []string{"", "do", "doResponse", "chat", "__defineGetter__", "constructor"} {
		require.ErrorIs(t, n.Publish(ctx, messageType, nil), actionhero.ErrBadName, messageType)
	}
	for _, field := range []string{"messageType", "serverToken", "serverId"} {
		require.ErrorIs(t, n.Publish(ctx, "x", map[string]any{field: 1}), actionhero.ErrBadName)
	}
	require.ErrorIs(t, n.OnMessage("do", func(actionhero.Message) {}), actionhero.ErrBadName)
	require.Error(t, n.Chat(ctx, actionhero.ChatMessage{Message: "no room"}))
	require.Error(t, n.Chat(ctx, actionhero.ChatMessage{Room: "r", Message: ""}))
	_, err := n.DoCluster(ctx, "api.x", []any{func() {}}, "")
	require.ErrorContains(t, err, "arguments")
	require.Error(t, n.Publish(ctx, "x", map[string]any{"f": func() {}}))
	_, err = n.DoCluster(ctx, "api.x", []any{[]string{"\xff"}}, "")
	require.ErrorIs(t, err, actionhero.ErrEncoding)
	require.ErrorIs(t, n.Publish(ctx, "x", map[string]any{"f\xff": 1}), actionhero.ErrEncoding)
	require.ErrorIs(t, n.Publish(ctx, "x\xff", nil), actionhero.ErrEncoding)
	require.ErrorIs(t, n.Chat(ctx, actionhero.ChatMessage{Room: "\xff", Message: "m"}), actionhero.ErrEncoding)
	require.NoError(t, n.Publish(ctx, "end", map[string]any{"b": 2, "a": []int{1}}))
	p.all("end", 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Equal(t, []string{`{"messageType":"end","serverToken":"change-me","serverId":"` + n.ServerID() +
		`","a":[1],"b":2}`}, p.received)
}

// A malformed message must not end this process, nor call a method.
func TestBadMessagesAreDropped(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	p := newTap(t, client, ch, nil)
	n := newNode(t, client, ch, nil)
	require.NoError(t, n.Handle("api.echo", echo))
	malformed := []string{
		`null`, ``, `{`, `[]`, `"x"`, `7`, `{"messageType":1}`, `{"serverToken":{}}`,
		`{"messageType":"do","serverToken":"change-me","messageId":7,"method":"api.echo"}`,
		`{"messageType":"do","serverToken":"change-me","method":"api.echo"}`,
		`{"messageType":"do","serverToken":"change-me","messageId":"1"}`,
		`{"messageType":"do","serverToken":"change-me","messageId":"1","method":["api.echo"]}`,
	}
	untrusted := []string{
		`{}`, `{"messageType":"do","messageId":"1","method":"api.echo"}`,
		`{"messageType":"do","serverToken":"","messageId":"1","method":"api.echo"}`,
		`{"messageType":"do","serverToken":"change-m","messageId":"1","method":"api.echo"}`,
	}
	unknown := []string{
		`{"messageType":"do","serverToken":"change-me","messageId":"1","method":"api.log","args":["x has joined"]}`,
		`{"messageType":"do","serverToken":"change-me","messageId":"1","method":"api.constructor"}`,
		`{"messageType":"do","serverToken":"change-me","messageId":"1","method":"process.exit()"}`,
	}
	for _, text := range append(append(append([]string{
		`{"messageType":"do","serverToken":"change-me","messageId":"1","method":"api.echo","connectionId":"other"}`,
		`{"messageType":"chat","serverToken":"change-me"}`, `{"messageType":"toString","serverToken":"change-me"}`,
		`{"messageType":"doResponse","serverToken":"change-me","messageId":"nobody","response":1}`,
		`{"messageType":"doResponse","serverToken":"change-me"}`,
	}, malformed...), untrusted...), unknown...) {
		p.say(text)
	}
	p.say(`{"messageType":"do","serverToken":"change-me","messageId":"last","method":"api.echo","args":[1]}`)
	answers := p.all("doResponse", 3)
	last := answers[len(answers)-1]
	require.Equal(t, "last", last.MessageID)
	require.Equal(t, "[1]", string(last.Response))
	want := actionhero.Stats{
		Served: 1, Malformed: int64(len(malformed)), BadToken: int64(len(untrusted)), Unknown: int64(len(unknown)),
		Late: 3,
	}
	// The node receives its own response too, maybe after this test.
	luatomictest.Eventually(t, 10*time.Second, fmt.Sprintf("%+v", want), func() bool { return n.Stats() == want })
}

func TestConnectionsAreServedByTheirOwner(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	a, b, caller := newNode(t, client, ch, nil), newNode(t, client, ch, nil),
		newNode(t, client, ch, &actionhero.Options{Timeout: 300 * time.Millisecond})
	for _, n := range []*actionhero.Node{a, b} {
		require.NoError(t, n.Handle("api.who", func(_ context.Context, r *actionhero.Request) (any, error) {
			return r.ConnectionID, nil
		}))
	}
	require.NoError(t, b.Own("c1"))
	all, err := caller.Gather(t.Context(), "api.who", nil, "c1", 4*time.Second) // a does not answer
	require.NoError(t, err)
	require.Len(t, all, 1)
	var id string
	require.NoError(t, all[b.ServerID()].Decode(&id))
	require.Equal(t, "c1", id)
	b.Disown("c1")
	_, err = caller.DoCluster(t.Context(), "api.who", nil, "c1")
	require.ErrorIs(t, err, actionhero.ErrTimeout)
}

func TestErrorAloneIsErrRemote(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	newTap(t, client, ch, responses("old", "requestId", `[{}]`))
	n := newNode(t, client, ch, nil)
	r, err := n.DoCluster(t.Context(), "api.x", nil, "")
	require.ErrorIs(t, err, actionhero.ErrRemote)
	require.Equal(t, "old", r.ServerID)
}

func TestNoResponders(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	n := newNode(t, client, ch, &actionhero.Options{Timeout: time.Minute})
	began := time.Now()
	_, err := n.DoCluster(t.Context(), "api.x", nil, "")
	require.ErrorIs(t, err, actionhero.ErrNoResponders)
	_, err = n.Gather(t.Context(), "api.x", nil, "", time.Minute)
	require.ErrorIs(t, err, actionhero.ErrNoResponders)
	require.Less(t, time.Since(began), 20*time.Second)
	// As in ActionHero, a node is among the receivers of its own call.
	require.NoError(t, n.Handle("api.x", echo))
	r, err := n.DoCluster(t.Context(), "api.x", []any{1}, "")
	require.NoError(t, err)
	require.Equal(t, n.ServerID(), r.ServerID)
	_, err = n.DoCluster(t.Context(), "api.x", nil, "a-connection")
	require.ErrorIs(t, err, actionhero.ErrNoResponders)
}

func TestGather(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	n := newNode(t, client, ch, nil)
	require.NoError(t, n.Handle("api.x", func(context.Context, *actionhero.Request) (any, error) { return "own", nil }))
	newTap(t, client, ch, responses("new", "messageId", `"v29"`))
	twice := responses("old", "requestId", `["v14"]`)
	newTap(t, client, ch, func(m message) []string { return append(twice(m), twice(m)...) })
	began := time.Now()
	all, err := n.Gather(t.Context(), "api.x", nil, "", time.Minute)
	require.NoError(t, err)
	require.Less(t, time.Since(began), 30*time.Second, "no further response is possible")
	got := map[string]string{}
	for id, r := range all {
		var v string
		require.NoError(t, r.Decode(&v))
		got[id] = v
	}
	require.Equal(t, map[string]string{"new": "v29", "old": "v14", n.ServerID(): "own"}, got)

	newTap(t, client, ch, nil) // receives, and does not answer
	began = time.Now()
	all, err = n.Gather(t.Context(), "api.x", nil, "", 4*time.Second)
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.GreaterOrEqual(t, time.Since(began), 4*time.Second)
}

func TestResponsesAreMatchedByID(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	newTap(t, client, ch, func(m message) []string {
		if m.MessageType != "do" {
			return nil
		}
		right := responses("p", "messageId", string(m.Args))(m)[0]
		another := strings.Replace(right, m.MessageID, "another", 1)
		return []string{another, strings.Replace(right, "change-me", "wrong", 1), right, right}
	})
	n := newNode(t, client, ch, &actionhero.Options{Timeout: time.Minute})
	var callers sync.WaitGroup
	for i := range 50 {
		callers.Go(func() {
			r, err := n.DoCluster(t.Context(), "api.x", []any{i}, "")
			if err != nil || string(r.Raw) != "["+itoa(int64(i))+"]" {
				t.Errorf("%d: %v %v", i, r, err)
			}
		})
	}
	callers.Wait()
	luatomictest.Eventually(t, 20*time.Second, "late responses", func() bool {
		s := n.Stats()
		return s.Late == 100 && s.BadToken == 50 && s.Calls == 50
	})
}

// In messages of its own types an application may use the field names of calls with other meanings.
func TestFieldsOfOwnMessagesAreTheApplications(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	n := actionhero.NewNode(luatomictest.Client(t), &actionhero.Options{Channel: luatomictest.Namespace(t)})
	received := make(chan actionhero.Message, 1)
	require.NoError(t, n.OnMessage("order", func(m actionhero.Message) { received <- m }))
	runNode(t, n)
	require.NoError(t, n.Publish(ctx, "order", map[string]any{"method": 5, "requestId": []int{7}, "messageId": 1.5}))
	select {
	case m := <-received:
		require.Equal(t, n.ServerID(), m.ServerID)
		require.Contains(t, string(m.Raw), `"method":5`)
	case <-time.After(20 * time.Second):
		require.Fail(t, "not received", "%+v", n.Stats())
	}
	require.Zero(t, n.Stats().Malformed)
}

// A call that waits when Run ends gets no response any more: it ends, and does not wait for its time.
func TestTheEndOfRunEndsItsCalls(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	asked := make(chan struct{}, 2)
	server := newNode(t, client, ch, &actionhero.Options{Timeout: time.Minute})
	require.NoError(t, server.Handle("api.wait", func(ctx context.Context, _ *actionhero.Request) (any, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	for what, call := range map[string]func(*actionhero.Node) error{
		"a call": func(n *actionhero.Node) error {
			_, err := n.DoCluster(t.Context(), "api.wait", nil, "")
			return err
		},
		"a gather": func(n *actionhero.Node) error {
			_, err := n.Gather(t.Context(), "api.wait", nil, "", time.Minute)
			return err
		},
	} {
		n := actionhero.NewNode(client, &actionhero.Options{Channel: ch, Timeout: time.Minute})
		ctx, stop := context.WithCancel(t.Context())
		ended, called := make(chan error, 1), make(chan error, 1)
		go func() { ended <- n.Run(ctx) }()
		go func() { called <- call(n) }()
		lab.Soon(t, 20*time.Second, what, asked)
		stop()
		require.ErrorIs(t, lab.Soon(t, 20*time.Second, what, called), actionhero.ErrNotRunning)
		require.ErrorIs(t, lab.Soon(t, 20*time.Second, "Run", ended), context.Canceled)
	}
}
