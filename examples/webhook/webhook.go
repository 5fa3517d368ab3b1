// Package webhook is an example: each event is handled once, no matter how often it is delivered.
package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/lua"
)

//go:generate go tool luagen

// Do handles an event until ctx ends; then another delivery may handle it. An answer that is too large to be kept
// (about 1 MiB) is a failure.
type Do func(ctx context.Context, id string, body []byte) ([]byte, error)

const (
	lease  = time.Minute     // how long an event is an attempt's
	record = 5 * time.Second // the end of it, for the record of the answer
)

// Handle answers deliveries of events that a source names in the header Event-Id. It keeps the answer to the first
// delivery for a day and gives it to all others, even if the first sender has hung up. While the first delivery is
// handled, others get 409. They also get 409 for a minute if its process has died or could not reach the server
// afterwards. If do failed, or it is unknown whether the attempt began, the next delivery is handled.
func Handle(c lua.Client, source string, do Do) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, token := r.Header.Get("Event-Id"), uuid.NewString()
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "no body of at most 1 MiB", http.StatusBadRequest)
			return
		}
		ctx := context.WithoutCancel(r.Context()) // a sender that hangs up delivers the event again
		work, cancel := context.WithTimeout(ctx, lease-record)
		defer cancel()
		began, err := Begin(work, c, BeginParams{Source: source, ID: id, Token: token, Lease: lease})
		if errors.Is(err, lua.ErrBadName) {
			http.Error(w, "no Event-Id that can be used", http.StatusBadRequest)
			return
		}
		attempt := FinishParams{Source: source, ID: id, Token: token}
		switch {
		case errors.Is(err, lua.ErrOutcomeUnknown): // it may have begun, or a late copy of the call begins
			err = finish(ctx, c, attempt, err)
		case err == nil && began.State == BeginStateRun:
			attempt.Answer, err = do(work, id, body)
			began.Answer, err = attempt.Answer, finish(ctx, c, attempt, err)
		}
		switch {
		case err != nil:
			http.Error(w, "try again", http.StatusServiceUnavailable)
		case began.State == BeginStateBusy:
			http.Error(w, "in work", http.StatusConflict)
		default:
			_, _ = w.Write(began.Answer)
		}
	})
}

// finish keeps the answer for a day, or gives back an event whose handling failed.
func finish(ctx context.Context, c lua.Client, p FinishParams, failed error) error {
	ctx, cancel := context.WithTimeout(ctx, record)
	defer cancel()
	if failed == nil {
		p.Keep = 24 * time.Hour
		counts, err := Finish(ctx, c, p)
		switch {
		case errors.Is(err, lua.ErrTooLarge):
			failed = err // it was not sent
		case err == nil && !counts:
			return errors.New("the lease was over, and another attempt may have the event")
		default:
			return err
		}
	}
	_, err := Drop(ctx, c, DropParams{Source: p.Source, ID: p.ID, Token: p.Token})
	return errors.Join(failed, err)
}
