// Package webhook is an example: each event is handled once, however often it is delivered.
package webhook

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/luatomic/luatomic/lua"
)

//go:generate go tool luagen

// Handle answers deliveries of events that a source names in the header Event-Id. The answer of the first one is kept for
// a day and given to all others. While the first is at work, and for a minute where it has died, others get 409.
func Handle(c lua.Client, source string, do func(id string, body []byte) ([]byte, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, token := r.Header.Get("Event-Id"), uuid.NewString()
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil || id == "" {
			http.Error(w, "Event-Id or body missing", http.StatusBadRequest)
			return
		}
		began, err := Begin(r.Context(), c, BeginParams{Source: source, ID: id, Token: token, Lease: time.Minute})
		switch {
		case err != nil:
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		case began.State == BeginStateBusy:
			http.Error(w, "in work", http.StatusConflict)
			return
		case began.State == BeginStateDone:
			_, _ = io.Copy(w, bytes.NewReader(began.Answer))
			return
		}
		answer, err := do(id, body)
		if err == nil {
			_, err = Finish(r.Context(), c, FinishParams{Source: source, ID: id, Token: token, Keep: 24 * time.Hour, Answer: answer})
		}
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(answer)
	})
}
