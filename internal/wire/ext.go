package wire

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Ext are the fields of a frame that a reader may skip. Their zero values are not sent.
type Ext struct {
	Headers    map[string]string
	Node       string // of an answer: the node that gives it
	Connection string // of a request: the node must own it
	Details    string // of a failure
	Load       uint64 // of an answer: one more than how busy its node is, in thousandths
	State      State  // of an answer: what it means for the request
	Millis     uint64 // of a request with a key: how long its handler may take
	Beside     string // of a request or an answer: the id of its body, which travels by itself
	Digest     string // of a request with a key: of its body; of an answer: that of its request
}

// State says what a failure means for its request.
type State uint64

// The states of an answer.
const (
	StateDone       State = iota // it is the outcome
	StateNotRun                  // the node has not run the request; another one may
	StateHandedOver              // the node has left it half-way; another one may run it
	StateLost                    // the node has left it half-way
)

// Tags of the fields. A tag is never used for anything else again.
const (
	tagHeader     = 1 // key and value, each a text
	tagNode       = 2
	tagConnection = 3
	tagDetails    = 4
	tagLoad       = 5
	tagState      = 7 // 6 was that of a field which nobody read
	tagMillis     = 8
	tagBeside     = 9
	tagDigest     = 10
)

// Bounds of headers: Decode refuses more.
const (
	MaxHeaders     = 64
	MaxHeaderBytes = 16 << 10
)

func (e *Ext) size() int {
	n := 40 + len(e.Node) + len(e.Connection) + len(e.Details) + len(e.Beside) + len(e.Digest)
	for k, v := range e.Headers {
		n += 8 + len(k) + len(v)
	}
	return n
}

// append writes the block, its headers in order. The usual block has less than 128 bytes: its length is one byte, which
// is set behind.
func (e *Ext) append(f []byte) []byte {
	at := len(f)
	f = append(f, 0)
	if len(e.Headers) > 0 {
		for _, k := range slices.Sorted(maps.Keys(e.Headers)) {
			f = appendField(f, tagHeader, string(appendText(appendText(nil, k), e.Headers[k])))
		}
	}
	f = appendField(f, tagNode, e.Node)
	f = appendField(f, tagConnection, e.Connection)
	f = appendField(f, tagDetails, e.Details)
	f = appendNumber(f, tagLoad, e.Load)
	f = appendNumber(f, tagState, uint64(e.State))
	f = appendNumber(f, tagMillis, e.Millis)
	f = appendField(f, tagBeside, e.Beside)
	f = appendField(f, tagDigest, e.Digest)
	n := len(f) - at - 1
	if n < 0x80 {
		f[at] = byte(n)
		return f
	}
	block := slices.Clone(f[at+1:])
	return appendText(f[:at], block)
}

func appendField(f []byte, tag uint64, text string) []byte {
	if text == "" {
		return f
	}
	return appendText(binary.AppendUvarint(f, tag), text)
}

func appendNumber(f []byte, tag, n uint64) []byte {
	if n == 0 {
		return f
	}
	var buf [10]byte
	return appendText(binary.AppendUvarint(f, tag), binary.AppendUvarint(buf[:0], n))
}

// readExt reads the block. Fields with unknown tags are skipped; a field that comes twice counts once, the last time.
func (r *reader) readExt() (e Ext) {
	block := reader{rest: r.text(), ok: r.ok}
	headerBytes := 0
	for block.ok && block.rest != "" {
		tag, text := block.uvarint(), block.text()
		field := reader{rest: text, ok: block.ok}
		switch tag {
		case tagHeader:
			if e.Headers == nil {
				e.Headers = make(map[string]string)
			}
			k, v := field.text(), field.text()
			e.Headers[k] = v
			headerBytes += len(text)
			block.ok = field.end() && len(e.Headers) <= MaxHeaders && headerBytes <= MaxHeaderBytes
		case tagNode:
			e.Node = text
		case tagConnection:
			e.Connection = text
		case tagDetails:
			e.Details = text
		case tagBeside:
			e.Beside = text
		case tagDigest:
			e.Digest = text
		case tagLoad:
			e.Load = field.uvarint()
			block.ok = field.end()
		case tagState:
			e.State = State(field.uvarint())
			block.ok = field.end()
		case tagMillis:
			e.Millis = field.uvarint()
			block.ok = field.end() && e.Millis <= uint64(MaxTimeout.Milliseconds())
		}
	}
	r.ok = r.ok && block.ok
	return e
}
