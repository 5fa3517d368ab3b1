package lock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/lab"
	"github.com/luatomic/luatomic/lock"
)

// An observer ends with its Locker: no message comes after Close, and no read is of use to a program that ends.
func TestCloseEndsAnObserver(t *testing.T) {
	t.Parallel()
	l, name, _ := lab.NewLocker(t, &lock.Options{TTL: time.Hour})
	for _, already := range []bool{false, true} {
		var got []error
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for _, err := range l.Election(name).Observe(t.Context()) {
				got = append(got, err)
				_ = l.Close()
			}
		}()
		lab.Soon(t, 30*time.Second, "the end of Observe", ended)
		if !already {
			require.NoError(t, got[0])
			got = got[1:]
		}
		require.Equal(t, []error{lock.ErrClosed}, got)
	}
}
