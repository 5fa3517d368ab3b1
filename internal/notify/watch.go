package notify

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pingEvery is the time after the last answer of the server until the connection is pinged.
	pingEvery = 2 * time.Second
	// pingTimeout is how long a PING may have no answer. Then the connection is half-open, which no error reports.
	pingTimeout = 2 * time.Second
	// finalRead is how long the connection is read once more after that. If the process was paused, the answer has
	// arrived meanwhile, and nothing has read it.
	finalRead = 100 * time.Millisecond
)

// errSilent is the error of a connection whose PING has no answer.
var errSilent = errors.New("the subscription's connection does not answer a PING")

// errOutOfStep is the error of a connection whose answers are not those of its requests.
var errOutOfStep = errors.New("the answers on the subscription's connection do not match its requests")

// errMoved reports that the server no longer serves the hash slot of a sharded channel. The server itself ends the
// subscription.
var errMoved = errors.New("the slot of the channel has moved to another server")

// watch receives from a subscription and pings it. Only an answer proves that requests reach the server: a message may
// arrive while the other direction is broken.
type watch struct {
	ps     *redis.PubSub
	send   func() // sends a PING
	proved time.Time
	asked  time.Time // when a PING was sent that has no answer, or zero
	looked bool      // the final read for that answer was made
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
		return finalRead, nil
	}
	if wait = w.proved.Add(pingEvery).Sub(now); wait > 0 {
		return wait, nil
	}
	w.asked = now
	w.send()
	return pingTimeout, nil
}
