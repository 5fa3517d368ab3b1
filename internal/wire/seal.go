package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
)

// Errors of frames that are refused.
var (
	ErrMalformed = errors.New("luatomic: malformed frame")
	ErrForged    = errors.New("luatomic: frame without the signature of a known key; give all nodes the same " +
		"Options.Keys")
)

const macSize = 16

// Sealer signs frames and checks their signatures. Without keys it does neither.
type Sealer struct {
	// Keys are HMAC-SHA256 keys. The first one signs, each of them is accepted.
	Keys [][]byte
	// Bus is the name that is signed with each frame, so that no frame is accepted by another bus.
	Bus string
}

// Seal appends the signature to an encoded frame.
func (s *Sealer) Seal(frame []byte) []byte {
	if len(s.Keys) == 0 {
		return frame
	}
	return append(frame, s.mac(s.Keys[0], frame)...)
}

// Open checks the signature and removes it. It fails with ErrForged.
func (s *Sealer) Open(frame string) (string, error) {
	if len(s.Keys) == 0 {
		return frame, nil
	}
	if n := len(frame) - macSize; n >= 0 {
		for _, key := range s.Keys {
			if hmac.Equal(s.mac(key, []byte(frame[:n])), []byte(frame[n:])) {
				return frame[:n], nil
			}
		}
	}
	return "", ErrForged
}

func (s *Sealer) mac(key, frame []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(appendText(nil, s.Bus))
	h.Write(frame)
	return h.Sum(nil)[:macSize]
}
