// Package resent lets a caller know that an answer came to a call that had been
// sent before, without an answer: what it says may be the work of the first.
package resent

// Key finds a Noter in a context.
type Key struct{}

// Noter is told.
type Noter interface{ NoteResent() }
