package lua

// Opt is a value that may be absent: an optional argument or field of a reply.
// The zero Opt is absent.
type Opt[T any] struct {
	value   T
	present bool
}

// Some returns an Opt that holds v.
func Some[T any](v T) Opt[T] { return Opt[T]{value: v, present: true} }

// Get returns the value and whether it is present.
func (o Opt[T]) Get() (T, bool) { return o.value, o.present }

// Or returns the value, or other when it is absent.
func (o Opt[T]) Or(other T) T {
	if o.present {
		return o.value
	}
	return other
}

// Ptr points to the value inside o; nil when it is absent.
func (o *Opt[T]) Ptr() *T {
	if !o.present {
		return nil
	}
	return &o.value
}
