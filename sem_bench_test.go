package luatomic_test

import (
	"context"
	"testing"

	"github.com/luatomic/luatomic"
)

// BenchmarkPermitPair is an uncontended acquire and release, beside that of a lock.
func BenchmarkPermitPair(b *testing.B) {
	l, name, _ := newLocker(b, nil)
	s, rw := l.Semaphore(name, 10), l.RW(name)
	for kind, try := range map[string]func(context.Context) (*luatomic.Lease, error){
		"lock":      func(ctx context.Context) (*luatomic.Lease, error) { return l.Try(ctx, name) },
		"semaphore": func(ctx context.Context) (*luatomic.Lease, error) { return s.Try(ctx, 2) },
		"read":      rw.RTry,
		"write":     rw.Try,
	} {
		b.Run(kind, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				lease, err := try(b.Context())
				fatal(b, err)
				fatal(b, lease.Release(b.Context()))
			}
		})
	}
}
