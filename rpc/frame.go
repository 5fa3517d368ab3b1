package rpc

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
)

// A frame is what travels on the channels, opaque to the scripts. Numbers are
// unsigned varints; a text or body has its length before it.
//
//	request   'Q' 1 flags keep_ms id method body
//	reply     'R' 1 id body          failure   'E' 1 id code message
//	part      'r' 1 id node body     failure   'e' 1 id node code message
//	chunk     'C' 1 id seq body
//
// Words are short frames that say where to look, or what has happened:
//
//	'N' 1 id       a reply is stored      'L' 1 id...  requests are stored
//	'X' 1 id       a request is given up  'K' 1 id n   chunks up to n were read
//	'U' 1 node     a node subscribed      'D' 1 node   a node left
//	'P' 1          a node to itself
//
// Before a request stand, in text, its attempt, 0 for one that wants no reply, and
// what is left of its time in ms: '1 5000', a line feed. The scripts write that.
//
// With keys, 16 bytes of HMAC-SHA256 over the bus' name and the frame follow.

const frameVersion = 1

const (
	flagStream = 1 << iota // the reply comes in chunks
)

var errFrame = errors.New("luatomic: malformed frame")

type request struct {
	id, method string
	flags      uint64
	keep       time.Duration // how long the reply stays; 0 means the default
	body       []byte

	attempt int64 // 0: no reply is wanted
}

// response is a reply, a failure, or one node's part of a gather.
type response struct {
	id, node string
	body     []byte
	err      error
}

type chunk struct {
	id   string
	seq  uint64
	body []byte
}

func (q *request) encode() []byte {
	f := make([]byte, 0, 32+len(q.id)+len(q.method)+len(q.body)+macSize)
	f = append(f, 'Q', frameVersion)
	f = binary.AppendUvarint(f, q.flags)
	f = binary.AppendUvarint(f, uint64(clock.CeilMilli(q.keep)))
	return appendText(appendText(appendText(f, q.id), q.method), q.body)
}

func (a *response) encode() []byte {
	kind, size := byte('R'), 16+len(a.id)+len(a.node)+len(a.body)+macSize
	e, failed := a.err.(*RemoteError)
	if failed {
		kind, size = 'E', size+len(e.Code)+len(e.Message)
	}
	if a.node != "" {
		kind += 'a' - 'A'
	}
	f := appendText(append(make([]byte, 0, size), kind, frameVersion), a.id)
	if a.node != "" {
		f = appendText(f, a.node)
	}
	if failed {
		return appendText(appendText(f, e.Code), e.Message)
	}
	return appendText(f, a.body)
}

func (c *chunk) encode() []byte {
	f := append(make([]byte, 0, 24+len(c.id)+len(c.body)+macSize), 'C', frameVersion)
	return appendText(binary.AppendUvarint(appendText(f, c.id), c.seq), c.body)
}

func encodeWord(kind byte, texts ...string) []byte {
	f := []byte{kind, frameVersion}
	for _, t := range texts {
		f = appendText(f, t)
	}
	return f
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

func readFrame(f string) (kind byte, r frameReader) {
	if len(f) < 2 || f[1] != frameVersion {
		return 0, frameReader{}
	}
	return f[0], frameReader{rest: f[2:], ok: true}
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

// maxTimeout bounds the deadline that a request can ask for, maxKept how long its
// reply can stay.
const (
	maxTimeout = 24 * time.Hour
	maxKept    = 30 * 24 * time.Hour
)

// cutHeader reads what the scripts write before a request.
func cutHeader(f string) (attempt, leftMS int64, frame string, ok bool) {
	line, _, ok := strings.Cut(f[:min(len(f), 64)], "\n")
	first, second, two := strings.Cut(line, " ")
	attempt, a := parseDecimal(first)
	leftMS, l := parseDecimal(second)
	if !ok || !two || !a || !l || leftMS > maxTimeout.Milliseconds() {
		return 0, 0, "", false
	}
	return attempt, leftMS, f[len(line)+1:], true
}

// parseDecimal reads up to 12 digits.
func parseDecimal(s string) (n int64, ok bool) {
	if len(s) == 0 || len(s) > 12 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = 10*n + int64(s[i]-'0')
	}
	return n, true
}

func decodeRequest(f string) (request, error) {
	kind, r := readFrame(f)
	q := request{flags: r.uvarint()}
	keep := r.uvarint()
	q.id, q.method = r.text(), r.text()
	q.body = []byte(r.text())
	if kind != 'Q' || !r.end() || keep > uint64(maxKept.Milliseconds()) {
		return request{}, errFrame
	}
	q.keep = time.Duration(keep) * time.Millisecond
	return q, nil
}

func decodeAnswer(f string) (response, error) {
	kind, r := readFrame(f)
	out := response{id: r.text()}
	if kind == 'r' || kind == 'e' {
		out.node = r.text()
	}
	switch kind {
	case 'R', 'r':
		out.body = []byte(r.text())
	case 'E', 'e':
		out.err = &RemoteError{Code: r.text(), Message: r.text()}
	default:
		return response{}, errFrame
	}
	if !r.end() {
		return response{}, errFrame
	}
	return out, nil
}

func decodeChunk(f string) (chunk, error) {
	kind, r := readFrame(f)
	c := chunk{id: r.text(), seq: r.uvarint()}
	c.body = []byte(r.text())
	if kind != 'C' || !r.end() {
		return chunk{}, errFrame
	}
	return c, nil
}

// decodeWord reads the texts of a word.
func decodeWord(f string) (texts []string, err error) {
	_, r := readFrame(f)
	for r.ok && r.rest != "" {
		texts = append(texts, r.text())
	}
	if !r.ok {
		return nil, errFrame
	}
	return texts, nil
}

const macSize = 16

// seal appends the proof that the frame is from one who has the key.
func (b *Bus) seal(frame []byte) []byte {
	if len(b.opts.Keys) == 0 {
		return frame
	}
	return append(frame, b.mac(b.opts.Keys[0], frame)...)
}

// open checks that proof, against every key, and removes it.
func (b *Bus) open(frame string) (string, error) {
	if len(b.opts.Keys) == 0 {
		return frame, nil
	}
	if n := len(frame) - macSize; n >= 0 {
		for _, key := range b.opts.Keys {
			if hmac.Equal(b.mac(key, []byte(frame[:n])), []byte(frame[n:])) {
				return frame[:n], nil
			}
		}
	}
	return "", errForged
}

var errForged = errors.New("luatomic: a frame without the proof of a known key")

func (b *Bus) mac(key, frame []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(appendText(nil, b.keys.Nodes))
	h.Write(frame)
	return h.Sum(nil)[:macSize]
}
