package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
)

// Safety at the end of a lease, of each kind: when the server gives it to another owner, the first one knows by its own
// clock that it is over. Leases begin at all fractions of a millisecond, which the server may not round in favour of
// the second owner.
func TestALeaseIsOverLocallyBeforeAnotherOwnerHasIt(t *testing.T) {
	t.Parallel()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: 5 * time.Millisecond})
	type try = func(context.Context) (*lock.Lease, error)
	for kind, take := range map[string]try{
		"lock":      func(ctx context.Context) (*lock.Lease, error) { return l.Try(ctx, name+":lock") },
		"semaphore": func(ctx context.Context) (*lock.Lease, error) { return l.Semaphore(name+":sem", 1).Try(ctx, 1) },
		"rw":        l.RW(name + ":rw").Try,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			first, err := take(t.Context())
			require.NoError(t, err)
			for range 100 {
				second, err := take(t.Context())
				for ; err != nil; second, err = take(t.Context()) {
					require.ErrorIs(t, err, lock.ErrHeld)
				}
				require.ErrorIs(t, first.Err(), lock.ErrLost)
				first = second
			}
		})
	}
}
