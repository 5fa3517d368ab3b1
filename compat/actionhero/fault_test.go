package actionhero_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/actionhero"
	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/luatomictest"
)

// through returns a proxy before the shared server, and a client of it.
func through(t *testing.T) (*luatomictest.LossyProxy, *redis.Client) {
	t.Helper()
	proxy := luatomictest.NewLossyProxy(t, luatomictest.URL(t))
	opts, err := redis.ParseURL(proxy.URL())
	require.NoError(t, err)
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return proxy, client
}

// When the reply of PUBLISH is lost, the method runs once and the response still counts.
func TestACallIsPublishedOnce(t *testing.T) {
	t.Parallel()
	ch := luatomictest.Namespace(t)
	proxy, client := through(t)
	n := newNode(t, client, ch, &actionhero.Options{Timeout: time.Minute})
	p := newTap(t, luatomictest.Client(t), ch, responses("p", "messageId", `"v"`))
	publish := luatomictest.Command("PUBLISH", ch)
	proxy.Drop(1, publish)
	r, err := n.DoCluster(t.Context(), "api.x", nil, "")
	require.NoError(t, err)
	require.Equal(t, `"v"`, string(r.Raw))
	require.NoError(t, n.Publish(t.Context(), "end", nil))
	p.all("end", 1)
	require.Len(t, p.all("do", 1), 1)

	// Without a response, the error has both causes.
	quiet := newNode(t, client, ch+"-quiet", &actionhero.Options{Timeout: 2 * time.Second})
	proxy.Drop(1, luatomictest.Command("PUBLISH", ch+"-quiet"))
	_, err = quiet.DoCluster(t.Context(), "api.x", nil, "")
	require.ErrorIs(t, err, actionhero.ErrTimeout)
}

func TestAResponseIsPublishedOnce(t *testing.T) {
	t.Parallel()
	ch := luatomictest.Namespace(t)
	proxy, client := through(t)
	n := newNode(t, client, ch, nil)
	require.NoError(t, n.Handle("api.echo", echo))
	caller := newNode(t, luatomictest.Client(t), ch, nil)
	proxy.Drop(1, luatomictest.Command("PUBLISH", ch))
	_, err := caller.DoCluster(t.Context(), "api.echo", []any{1}, "")
	require.NoError(t, err)
	_, err = caller.DoCluster(t.Context(), "api.echo", []any{2}, "")
	require.NoError(t, err)
	require.Zero(t, caller.Stats().Late)
}

func TestAPublishThatIsRefusedFailsAtOnce(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	admin := server.Client()
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "mute", "on", ">p", "~*", "&*", "+@all",
		"-publish").Err())
	opts, err := redis.ParseURL(server.URL())
	require.NoError(t, err)
	opts.Username, opts.Password = "mute", "p"
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	n := newNode(t, client, "ch", &actionhero.Options{Timeout: time.Minute})
	_, err = n.DoCluster(t.Context(), "api.x", nil, "")
	require.ErrorContains(t, err, "NOPERM")
	require.ErrorContains(t, n.Publish(t.Context(), "x", nil), "NOPERM")
}

func TestANodeComesBackAfterItsConnectionsAreCut(t *testing.T) {
	t.Parallel()
	ch := luatomictest.Namespace(t)
	proxy, client := through(t)
	n := newNode(t, client, ch, nil)
	require.NoError(t, n.Handle("api.echo", echo))
	caller := newNode(t, client, ch, &actionhero.Options{Timeout: time.Second})
	for range 10 {
		proxy.CutAll()
		luatomictest.Eventually(t, 60*time.Second, "a response", func() bool {
			r, err := caller.DoCluster(t.Context(), "api.echo", []any{1}, "")
			return err == nil && string(r.Raw) == "[1]"
		})
	}
	require.True(t, n.Connected())
}

// A connection that is open but delivers nothing.
func TestANodeLeavesASilentConnection(t *testing.T) {
	t.Parallel()
	ch := luatomictest.Namespace(t)
	proxy, client := through(t)
	n := newNode(t, client, ch, nil)
	proxy.Blackhole(true)
	luatomictest.Eventually(t, 60*time.Second, "the node notices", func() bool { return !n.Connected() })
	proxy.Blackhole(false)
	luatomictest.Eventually(t, 60*time.Second, "the node is subscribed again", n.Connected)
}

// With its own connection down, a node cannot distinguish itself from another by the number of receivers.
func TestNoRespondersIsNotGuessed(t *testing.T) {
	t.Parallel()
	ch := luatomictest.Namespace(t)
	proxy, client := through(t)
	n := newNode(t, client, ch, nil)
	newTap(t, luatomictest.Client(t), ch, responses("p", "messageId", `1`)) // always subscribed
	stop := make(chan struct{})
	var cutter sync.WaitGroup
	cutter.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(15 * time.Millisecond):
				proxy.CutAll()
			}
		}
	})
	answered := 0
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := n.DoCluster(ctx, "api.x", nil, "")
		cancel()
		require.NotErrorIs(t, err, actionhero.ErrNoResponders)
		if err == nil {
			answered++
		}
	}
	close(stop)
	cutter.Wait()
	t.Logf("%d of 100 calls were answered", answered)
	luatomictest.Eventually(t, 60*time.Second, "a response", func() bool {
		_, err := n.DoCluster(t.Context(), "api.x", nil, "")
		return err == nil
	})
}

func TestTooManyHandlersAreShed(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	n := newNode(t, client, ch, &actionhero.Options{Concurrency: 2, Timeout: time.Minute})
	release := make(chan struct{})
	var running atomic.Int64
	require.NoError(t, n.Handle("api.slow", func(ctx context.Context, _ *actionhero.Request) (any, error) {
		running.Add(1)
		<-release
		return nil, ctx.Err()
	}))
	p := newTap(t, client, ch, nil)
	for range 5 {
		p.say(`{"messageType":"do","serverToken":"change-me","messageId":"1","method":"api.slow","args":[]}`)
	}
	luatomictest.Eventually(t, 20*time.Second, "three shed, two running", func() bool {
		return n.Stats().Shed == 3 && running.Load() == 2
	})
	close(release)
	p.all("doResponse", 2)
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	n := actionhero.NewNode(client, &actionhero.Options{Channel: ch, Timeout: time.Hour})
	ctx, stop := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	require.NoError(t, n.Ready(t.Context()))
	require.Error(t, n.Run(t.Context()), "it runs once")
	reason := errors.New("done")
	var handled atomic.Bool
	require.NoError(t, n.Handle("api.wait", func(ctx context.Context, _ *actionhero.Request) (any, error) {
		handled.Store(true)
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	require.NoError(t, client.Publish(t.Context(), ch,
		`{"messageType":"do","serverToken":"change-me","messageId":"1","method":"api.wait"}`).Err())
	luatomictest.Eventually(t, 20*time.Second, "the handler runs", handled.Load)
	stop(reason)
	select {
	case err := <-done:
		require.ErrorIs(t, err, reason)
	case <-time.After(20 * time.Second):
		t.Fatal("Run does not return")
	}
	go func() {
		_, err := n.DoCluster(t.Context(), "api.x", nil, "")
		done <- err
	}()
	require.ErrorIs(t, lab.Soon(t, 20*time.Second, "the call", done), actionhero.ErrNotRunning)
}

func TestANodeThatDoesNotRun(t *testing.T) {
	t.Parallel()
	client, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	p := newTap(t, client, ch, nil)
	n := actionhero.NewNode(client, &actionhero.Options{Channel: ch, Timeout: 50 * time.Millisecond})
	_, err := n.DoCluster(t.Context(), "api.x", nil, "")
	require.ErrorIs(t, err, actionhero.ErrNotRunning)
	require.False(t, n.Connected())
	require.NoError(t, n.Publish(t.Context(), "x", nil))
	require.NoError(t, n.Chat(t.Context(),
		actionhero.ChatMessage{Room: "r", ConnectionID: "c", Message: "hi", SentAt: time.UnixMilli(5)}))
	p.all("chat", 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Equal(t,
		`{"messageType":"chat","serverToken":"change-me","serverId":"`+n.ServerID()+`","message":"hi","sentAt":5,`+
			`"connection":{"id":"c","room":"r"}}`, p.received[1])
	chat, err := actionhero.ParseChat(actionhero.Message{Raw: json.RawMessage(p.received[1])})
	require.NoError(t, err)
	require.Equal(t, actionhero.ChatMessage{
		Room: "r", ConnectionID: "c", Message: json.RawMessage(`"hi"`), SentAt: time.UnixMilli(5)}, chat)
}

func TestRunKeepsTryingToSubscribe(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	var errs atomic.Int64
	n := actionhero.NewNode(client, &actionhero.Options{Timeout: 50 * time.Millisecond, OnError: func(error) {
		errs.Add(1)
	}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	luatomictest.Eventually(t, 20*time.Second, "reports", func() bool { return errs.Load() > 1 })
	_, err := n.DoCluster(t.Context(), "api.x", nil, "")
	require.ErrorIs(t, err, actionhero.ErrNotRunning)
	stop()
	require.ErrorIs(t, <-done, context.Canceled)
}

// The user of a node loses the right to subscribe: OnError gets the refusal. The user has the right again: the node
// subscribes again by itself.
func TestANodeThatMayNotSubscribeAnewIsTold(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	admin := server.Client()
	rights := func(subscribe string) {
		t.Helper()
		args := []any{"ACL", "SETUSER", "late", "on", ">pw", "~*", "&*", "+@all", subscribe}
		require.NoError(t, admin.Do(t.Context(), args...).Err())
	}
	rights("+subscribe")
	refused := make(chan error, 100)
	client := server.Client(func(o *redis.Options) { o.Username, o.Password = "late", "pw" })
	n := actionhero.NewNode(client, &actionhero.Options{OnError: func(err error) { refused <- err }})
	runNode(t, n)
	rights("-subscribe")
	require.NoError(t, admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
	require.ErrorContains(t, lab.Soon(t, 20*time.Second, "a report", refused), "actionhero: subscribe: NOPERM")
	rights("+subscribe")
	luatomictest.Eventually(t, 20*time.Second, "it is subscribed", n.Connected)
}

func TestNodesOnACluster(t *testing.T) {
	t.Parallel()
	client := luatomictest.StartCluster(t).Client()
	a, b := newNode(t, client, "ch", nil), newNode(t, client, "ch", nil)
	require.NoError(t, b.Handle("api.echo", echo))
	for i := range 20 {
		r, err := a.DoCluster(t.Context(), "api.echo", []any{i}, "")
		require.NoError(t, err)
		require.Equal(t, b.ServerID(), r.ServerID)
	}
}

// slowPublish delays the return of PUBLISH.
type slowPublish struct {
	redis.Hook
	wait func()
}

func (s slowPublish) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s slowPublish) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s slowPublish) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "publish" {
			s.wait()
		}
		return err
	}
}

// The response can arrive before PUBLISH has returned.
func TestAnAnswerIsNeverTooEarly(t *testing.T) {
	t.Parallel()
	direct, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	p := newTap(t, direct, ch, responses("p", "messageId", `"early"`))
	client := luatomictest.Client(t)
	n := newNode(t, client, ch, &actionhero.Options{Timeout: time.Minute})
	returned := make(chan struct{}) // the call may end before PUBLISH has
	client.AddHook(slowPublish{wait: func() {
		defer close(returned)
		p.all("doResponse", 1)
		for range 50 { // until this node has received it too
			if n.Stats().Late > 0 {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}})
	r, err := n.DoCluster(t.Context(), "api.x", nil, "")
	<-returned
	require.NoError(t, err)
	require.Equal(t, `"early"`, string(r.Raw))
	require.Zero(t, n.Stats().Late)
}

func TestACallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	proxy, client := through(t)
	n := newNode(t, client, luatomictest.Namespace(t), &actionhero.Options{Timeout: time.Minute})
	proxy.Blackhole(true)
	defer proxy.Blackhole(false)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := n.DoCluster(ctx, "api.x", nil, "")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 20*time.Second, "it would wait for a minute")
}

// Messages that share a round trip are published once each.
func TestCallsThatShareARoundTripArePublishedOnce(t *testing.T) {
	t.Parallel()
	direct, ch := luatomictest.Client(t), luatomictest.Namespace(t)
	proxy, client := through(t)
	p := newTap(t, direct, ch, nil)
	n := newNode(t, client, ch, &actionhero.Options{Timeout: 200 * time.Millisecond})
	var sent, lost atomic.Int64
	var callers sync.WaitGroup
	stop := make(chan struct{})
	proxy.Drop(1, luatomictest.Command("PUBLISH", ch)) // at least one, however early the senders end
	callers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				proxy.Drop(1, luatomictest.Command("PUBLISH", ch))
				time.Sleep(2 * time.Millisecond)
			}
		}
	})
	var senders sync.WaitGroup
	for w := range 16 {
		senders.Go(func() {
			for i := range 50 {
				sent.Add(1)
				if err := n.Publish(t.Context(), "mine", map[string]any{"n": w*1000 + i}); err != nil {
					lost.Add(1)
				}
			}
		})
	}
	senders.Wait()
	close(stop)
	callers.Wait()
	require.NoError(t, direct.Publish(t.Context(), ch, `{"messageType":"end"}`).Err())
	p.all("end", 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[string]bool{}
	for _, text := range p.received {
		require.False(t, seen[text], text)
		seen[text] = true
	}
	require.Positive(t, lost.Load(), "no reply was lost: the test shows nothing")
	require.GreaterOrEqual(t, int64(len(seen)-1), sent.Load()-lost.Load())
}
