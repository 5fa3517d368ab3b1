// Package resent lets a caller learn that a reply answers a retry. The earlier attempt got no reply and may have done
// the work that this reply describes.
package resent

// Key is the context key of a Noter.
type Key struct{}

// A Noter learns that the reply it got answers a retry.
type Noter interface{ NoteResent() }
