package lock_test

import (
	"context"
	"testing"

	"github.com/luatomic/luatomic/internal/lab"
	"github.com/luatomic/luatomic/lock"
)

// BenchmarkPermitPair is an uncontended acquire and release, beside that of a lock.
func BenchmarkPermitPair(b *testing.B) {
	l, name, _ := lab.NewLocker(b, nil)
	s, rw := l.Semaphore(name, 10), l.RW(name)
	for kind, try := range map[string]func(context.Context) (*lock.Lease, error){
		"lock":      func(ctx context.Context) (*lock.Lease, error) { return l.Try(ctx, name) },
		"semaphore": func(ctx context.Context) (*lock.Lease, error) { return s.Try(ctx, 2) },
		"read":      rw.RTry,
		"write":     rw.Try,
	} {
		b.Run(kind, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				lease, err := try(b.Context())
				lab.Fatal(b, err)
				lab.Fatal(b, lease.Release(b.Context()))
			}
		})
	}
}
