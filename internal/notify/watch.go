package notify

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pingEvery is how long a subscription may be without a sign that requests reach the server before it is pinged.
	pingEvery = 2 * time.Second
	// pingTimeout is how long a PING may be without an answer: then the connection is half-open, of which no error
	// tells.
	pingTimeout = 2 * time.Second
	// lastLook is how long the answer is looked for once more after that: where it was the process that stood still,
	// the answer is there by now, and no read has looked for it since.
	lastLook = 100 * time.Millisecond
)

// errSilent is the error of a connection whose PING has no answer.
var errSilent = errors.New("the subscription's connection does not answer a PING")

// errOutOfStep is the error of a connection whose answers are not those of its requests.
var errOutOfStep = errors.New("the answers on the subscription's connection do not match its requests")

// errMoved reports that the server does not serve the slot of a sharded channel any more. The server itself ends the
// subscription.
var errMoved = errors.New("the slot of the channel has moved to another server")

// watch receives from a subscription and pings it. Only an answer proves that the connection works: the messages that
// still arrive say nothing of the other direction.
type watch struct {
	ps     *redis.PubSub
	send   func() // sends a PING
	proved time.Time
	asked  time.Time // when a PING was sent that has no answer, or zero
	looked bool      // for that answer once more, after its time
}

func newWatch(ps *redis.PubSub, send func()) *watch {
	return &watch{ps: ps, send: send, proved: time.Now()}
}

// alive notes an answer of the server.
func (w *watch) alive() { w.proved, w.asked, w.looked = time.Now(), time.Time{}, false }

// next returns the next message, subscription or answer to a PING, or the error of a connection that is broken.
func (w *watch) next(ctx context.Context) (any, error) {
	for {
		wait, err := w.ping()
		if err != nil {
			return nil, err
		}
		m, err := w.ps.ReceiveTimeout(ctx, wait)
		if err != nil {
			var late interface{ Timeout() bool }
			if errors.As(err, &late) && late.Timeout() && ctx.Err() == nil {
				continue
			}
			return nil, err
		}
		switch m.(type) {
		case *redis.Pong, *redis.Subscription:
			w.alive()
		}
		return m, nil
	}
}

// ping pings the connection if that is due, and returns how long to receive until it is due again.
func (w *watch) ping() (wait time.Duration, err error) {
	now := time.Now()
	if !w.asked.IsZero() {
		wait = w.asked.Add(pingTimeout).Sub(now)
		switch {
		case wait > 0:
			return wait, nil
		case w.looked:
			return 0, errSilent
		}
		w.looked = true
		return lastLook, nil
	}
	if wait = w.proved.Add(pingEvery).Sub(now); wait > 0 {
		return wait, nil
	}
	w.asked = now
	w.send()
	return pingTimeout, nil
}
