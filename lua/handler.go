package lua

import "fmt"

// Codec encodes and decodes the bodies of jobs and of calls. It must be safe for concurrent use. Unmarshal gets a
// pointer to the declared type. If the type of a method is a pointer itself, such as a protobuf message, it points to a
// new value.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

// PanicError is the error of a handler, of jobs or of a call, that panicked. Its text is without the stack. Those of a
// queue.JobError and of what a bus reports have both.
type PanicError struct {
	// Method is the method of a call, empty for a job.
	Method string
	// Value is what the handler panicked with.
	Value any
	// Stack is the stack of the handler's goroutine, in the form of debug.Stack.
	Stack []byte
}

func (e *PanicError) Error() string {
	of := ""
	if e.Method != "" {
		of = fmt.Sprintf(" of %q", e.Method)
	}
	return fmt.Sprintf("luatomic: the handler%s panicked: %v", of, e.Value)
}
