package luatomic

import (
	"encoding/binary"
	"errors"
	"time"
)

// A frame is what travels on the channels, opaque to the scripts. Numbers are
// unsigned varints; a text or body has its length before it.
//
//	request   'Q' 1 timeout_ms id method body
//	reply     'R' 1 id body
//	failure   'E' 1 id code message
//
// The timeout is what was left when the request was made: clocks need not agree.

const frameVersion = 1

var errFrame = errors.New("luatomic: malformed frame")

type request struct {
	id, method string
	timeout    time.Duration
	body       []byte
}

type reply struct {
	id   string
	body []byte
	err  error
}

func encodeRequest(id, method string, timeout time.Duration, body []byte) []byte {
	f := make([]byte, 0, 24+len(id)+len(method)+len(body))
	f = append(f, 'Q', frameVersion)
	f = binary.AppendUvarint(f, uint64(ceilMilli(timeout)))
	return appendText(appendText(appendText(f, id), method), body)
}

func encodeReply(id string, body []byte) []byte {
	f := make([]byte, 0, 16+len(id)+len(body))
	return appendText(appendText(append(f, 'R', frameVersion), id), body)
}

func encodeFailure(id string, e *RemoteError) []byte {
	f := append([]byte(nil), 'E', frameVersion)
	return appendText(appendText(appendText(f, id), e.Code), e.Message)
}

func appendText[T string | []byte](f []byte, s T) []byte {
	return append(binary.AppendUvarint(f, uint64(len(s))), s...)
}

// frameReader reads the parts of a frame. After a mistake all reads are empty and
// ok is false.
type frameReader struct {
	rest string
	ok   bool
}

func readFrame(f string) (kind byte, r *frameReader) {
	if len(f) < 2 || f[1] != frameVersion {
		return 0, &frameReader{}
	}
	return f[0], &frameReader{rest: f[2:], ok: true}
}

func (r *frameReader) uvarint() uint64 {
	var n uint64
	for shift := 0; shift < 63 && len(r.rest) > 0; shift += 7 {
		b := r.rest[0]
		r.rest = r.rest[1:]
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
	r.ok = false
	return 0
}

func (r *frameReader) text() string {
	n := r.uvarint()
	if !r.ok || n > uint64(len(r.rest)) {
		r.ok = false
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

// end reports whether the frame was well formed and nothing is left of it.
func (r *frameReader) end() bool { return r.ok && r.rest == "" }

// maxTimeout bounds the deadline that a request can ask for.
const maxTimeout = 24 * time.Hour

func decodeRequest(f string) (request, error) {
	kind, r := readFrame(f)
	timeout := r.uvarint()
	q := request{id: r.text(), method: r.text()}
	q.body = []byte(r.text())
	if kind != 'Q' || !r.end() || timeout > uint64(maxTimeout/time.Millisecond) {
		return request{}, errFrame
	}
	q.timeout = time.Duration(timeout) * time.Millisecond
	return q, nil
}

func decodeReply(f string) (reply, error) {
	kind, r := readFrame(f)
	out := reply{id: r.text()}
	switch kind {
	case 'R':
		out.body = []byte(r.text())
	case 'E':
		out.err = &RemoteError{Code: r.text(), Message: r.text()}
	default:
		return reply{}, errFrame
	}
	if !r.end() {
		return reply{}, errFrame
	}
	return out, nil
}
