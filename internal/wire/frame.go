// Package wire encodes, signs and decodes the frames that the callers and nodes of a bus send to each other. It has
// no state and sends nothing.
//
// The scripts pass frames on without reading them. Numbers are unsigned varints in their shortest form; a text or a
// body has its length before it. The second byte is the version of the frame.
//
//	request   'Q' 2 id method flags keep_ms ext body
//	answer    'R' 2 id ext body      failure   'E' 2 id code message ext
//	chunk     'C' 2 id seq body      body      'B' 2 id body
//
// Notices are short frames without a body:
//
//	'N' 2 id...    parts are stored          'L' 2 id...     requests are stored for this node
//	'X' 2 id       a request is cancelled    'K' 2 id n      chunks up to n were read
//	'U' 2 node     a node subscribed anew    'D' 2 node      a node left
//	'P' 2 text...  an echo: a node sends it to itself, with a text where it leaves
//	'M' 2 name     another node has taken a connection over
//
// ext is a block with its length before it: pairs of a tag and a text. A reader skips the tags that it does not know,
// so that a field can be added while processes of two versions run. What a reader may not skip is a flag or a new
// version: a node refuses both by an answer, and each version begins with kind, version and id.
//
// A message is one frame, or items that scripts have put together. An item has a header in decimal: the attempt, 0
// where no reply is wanted, the remaining time in ms, and the length of its frame, as in "1 5000 42\n". The header is
// not signed.
//
// With keys, 16 bytes of HMAC-SHA256 over the name of the bus and the frame follow each frame.
package wire

import (
	"encoding/binary"
	"time"

	"github.com/luatomic/luatomic/internal/clock"
)

// Version is that of the frames that this code writes, and the only one that it reads.
const Version = 2

// Flags of a request.
const (
	FlagStream     = 1 << iota // the reply is wanted in chunks
	FlagIdempotent             // the handler may run twice
	FlagBeside                 // the body travels by itself, see Ext.Beside
	knownFlags     = FlagStream | FlagIdempotent | FlagBeside
)

// MaxTimeout bounds the remaining time of a request, MaxKeep how long its reply may be kept. Decode refuses more.
const (
	MaxTimeout = 24 * time.Hour
	MaxKeep    = 30 * 24 * time.Hour
)

// A Frame is a *Request, *Answer, *Chunk, *Body or *Notice.
type Frame interface {
	// Encode returns the frame without its signature and header.
	Encode() []byte
}

// Request asks a node to run a method.
type Request struct {
	ID, Method string
	Flags      uint64
	Keep       time.Duration // how long the reply stays; 0: for its caller alone
	Ext        Ext
	Body       []byte

	// Attempt and Left come from the header, or from the record of a request that is fetched.
	Attempt int64 // 0: no reply is wanted
	Left    time.Duration
}

// Failure is the outcome of a handler that failed.
type Failure struct{ Code, Message string }

// Answer is the outcome of a call: a body, or a failure.
type Answer struct {
	ID      string
	Ext     Ext
	Body    []byte
	Failure *Failure
}

// Chunk is one part of a streaming reply. Seq counts from 1.
type Chunk struct {
	ID   string
	Seq  uint64
	Body []byte
}

// Body is the body of a request or of an answer that travels by itself. ID names it.
type Body struct {
	ID   string
	Body []byte
}

// NoticeKind says what a Notice reports, and with it what its texts are.
type NoticeKind byte

// The kinds of notices.
const (
	PartStored    NoticeKind = 'N' // ids of calls
	RequestStored NoticeKind = 'L' // ids of calls that this node should have
	Cancelled     NoticeKind = 'X' // the id of a request
	ChunksRead    NoticeKind = 'K' // the id of a request and the number of the last chunk read, in decimal
	Subscribed    NoticeKind = 'U' // a node
	Left          NoticeKind = 'D' // a node
	Echo          NoticeKind = 'P' // nothing, or what the node waits for
	Moved         NoticeKind = 'M' // a connection
)

// Notice reports that something happened, without a body. It may be lost.
type Notice struct {
	Kind  NoticeKind
	Texts []string
}

// Encode returns the frame.
func (q *Request) Encode() []byte {
	f := begin('Q', q.ID, len(q.Method)+q.Ext.size()+len(q.Body))
	f = appendText(f, q.Method)
	f = binary.AppendUvarint(f, q.Flags)
	f = binary.AppendUvarint(f, uint64(clock.CeilMilli(q.Keep)))
	return appendText(q.Ext.append(f), q.Body)
}

// Encode returns the frame.
func (a *Answer) Encode() []byte {
	if e := a.Failure; e != nil {
		f := begin('E', a.ID, len(e.Code)+len(e.Message)+a.Ext.size())
		return a.Ext.append(appendText(appendText(f, e.Code), e.Message))
	}
	return appendText(a.Ext.append(begin('R', a.ID, a.Ext.size()+len(a.Body))), a.Body)
}

// Encode returns the frame.
func (c *Chunk) Encode() []byte {
	return appendText(binary.AppendUvarint(begin('C', c.ID, len(c.Body)), c.Seq), c.Body)
}

// Encode returns the frame.
func (b *Body) Encode() []byte { return appendText(begin('B', b.ID, len(b.Body)), b.Body) }

// Encode returns the frame.
func (n *Notice) Encode() []byte {
	f := []byte{byte(n.Kind), Version}
	for _, t := range n.Texts {
		f = appendText(f, t)
	}
	return f
}

func begin(kind byte, id string, size int) []byte {
	f := make([]byte, 0, 40+len(id)+size+macSize)
	return appendText(append(f, kind, Version), id)
}

func appendText[T string | []byte](f []byte, s T) []byte {
	return append(binary.AppendUvarint(f, uint64(len(s))), s...)
}
