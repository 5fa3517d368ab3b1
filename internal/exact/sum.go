package exact

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"io"
)

// Sum sums up what a token stands for, so that a second call under the token can be compared with the first one. Each
// text has its length before it, so no two lists of texts read alike.
type Sum struct{ h hash.Hash }

// NewSum returns the sum of nothing.
func NewSum() Sum { return Sum{sha256.New()} }

// Add adds texts.
func (s Sum) Add(texts ...string) {
	for _, text := range texts {
		s.Count(len(text))
		_, _ = io.WriteString(s.h, text)
	}
}

// AddBytes adds a text of bytes.
func (s Sum) AddBytes(text []byte) {
	s.Count(len(text))
	_, _ = s.h.Write(text)
}

// Count adds a number.
func (s Sum) Count(n int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	_, _ = s.h.Write(b[:])
}

// String returns the sum as 22 letters, digits, - and _.
func (s Sum) String() string { return base64.RawURLEncoding.EncodeToString(s.h.Sum(nil)[:16]) }
