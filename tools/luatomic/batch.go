package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/luatomic/luatomic/queue"
)

// maxLine is the longest line of input.
const maxLine = 2 << 20

// lineError is a line that is no job.
type lineError struct {
	line int
	err  error
}

// batch is a run of lines that are pushed together or, if one of them is broken,
// not at all.
type batch[T any] struct {
	jobs        []T
	lines       int // with jobs or broken; empty ones do not count
	first, last int // line numbers
	size        int
	broken      []lineError
	// read is how many bytes of input were read up to the end of the batch.
	read int64
}

// batches reads lines into batches of at most queue.MaxBatch lines and
// batchRoom bytes, so memory does not grow with the input.
type batches[T any] struct {
	form  form[T]
	in    *bufio.Reader
	long  []byte // a line that is longer than the reader's buffer
	line  int
	skips int // so many lines at the start are of an earlier push
	read  int64
	held  *T // did not fit into the batch before
	heldN int
}

// form is how a line becomes a job of one dialect.
type form[T any] interface {
	parse(line []byte) (T, error)
	// size is what the job takes of batchRoom, or more.
	size(job *T) int
	// blanks reports whether a line of blanks is a job.
	blanks() bool
}

func newBatches[T any](in io.Reader, f form[T]) *batches[T] {
	return &batches[T]{form: f, in: bufio.NewReaderSize(in, 64<<10)}
}

// after leaves out the first n lines.
func (b *batches[T]) after(n int) *batches[T] {
	b.skips = n
	return b
}

// next returns the next batch. The last one comes with io.EOF, and may be empty;
// another error ends the input too.
func (b *batches[T]) next() (*batch[T], error) {
	out := &batch[T]{}
	if b.held != nil {
		out.add(b.heldN, *b.held, b.form.size(b.held))
		b.held = nil
	}
	for out.lines < queue.MaxBatch {
		text, err := b.readLine()
		if b.line <= b.skips && (err == nil || errors.Is(err, bufio.ErrTooLong)) {
			continue
		}
		if err != nil && !errors.Is(err, bufio.ErrTooLong) {
			out.read = b.read
			return out, err
		}
		if err != nil {
			out.spoil(b.line, fmt.Errorf("the line is longer than %d bytes; split it, "+
				"or store the data elsewhere and push its place", maxLine))
			continue
		}
		if b.skip(text) {
			continue
		}
		job, err := b.form.parse(text)
		switch {
		case err != nil && b.line == 1 && marked(text):
			out.spoil(b.line, errMarked)
		case err != nil:
			out.spoil(b.line, err)
		case out.lines > 0 && out.size+b.form.size(&job) > batchRoom:
			b.held, b.heldN = &job, b.line
			out.read = b.read
			return out, nil
		default:
			out.add(b.line, job, b.form.size(&job))
		}
	}
	out.read = b.read
	return out, nil
}

var errMarked = errors.New("it begins with a byte order mark; save the file as UTF-8 without one")

// marked reports whether a text begins as some editors begin a file: in UTF-8, or in one of the forms of UTF-16.
func marked(text []byte) bool {
	return slices.ContainsFunc([]string{"\ufeff", "\xff\xfe", "\xfe\xff"}, func(mark string) bool {
		return bytes.HasPrefix(text, []byte(mark))
	})
}

func (b *batch[T]) add(line int, job T, size int) {
	b.count(line)
	b.size += size
	b.jobs = append(b.jobs, job)
}

func (b *batch[T]) spoil(line int, err error) {
	b.count(line)
	b.broken = append(b.broken, lineError{line, err})
}

func (b *batch[T]) count(line int) {
	if b.lines == 0 {
		b.first = line
	}
	b.lines++
	b.last = line
}

// skip reports whether a line is empty; a raw body of blanks is not.
func (b *batches[T]) skip(text []byte) bool {
	if b.form.blanks() {
		return len(text) == 0
	}
	return len(bytes.TrimSpace(text)) == 0
}

// readLine returns the next line without its end. It stays valid until the next
// call. A line above maxLine is read to its end, dropped, and reported as
// bufio.ErrTooLong. A last line without an end is a line; io.EOF comes alone.
func (b *batches[T]) readLine() ([]byte, error) {
	b.long = b.long[:0]
	tooLong := false
	for started := false; ; started = true {
		part, err := b.in.ReadSlice('\n')
		b.read += int64(len(part))
		if !started && (len(part) > 0 || err == nil) {
			b.line++
		}
		full := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !full && (!errors.Is(err, io.EOF) || len(part) == 0 && !started) {
			return nil, err
		}
		part = bytes.TrimSuffix(part, []byte{'\n'})
		if tooLong = tooLong || len(b.long)+len(part) > maxLine; !tooLong && (full || started) {
			b.long = append(b.long, part...)
		}
		switch {
		case full:
		case tooLong:
			return nil, bufio.ErrTooLong
		case started:
			return b.long, nil
		default:
			return part, nil
		}
	}
}
