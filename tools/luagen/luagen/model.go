package luagen

import "github.com/luatomic/luatomic/tools/luagen/luaast"

// Kind is the base of a header type.
type Kind uint8

// The kinds. Tuple and Array occur in replies, Tuple in groups too; Any is a whole reply.
const (
	Int Kind = iota
	Uint
	Bool
	Float
	String
	Bytes
	Millis
	Seconds
	TimeMillis
	TimeSeconds
	Enum
	Tuple
	Array
	Any
)

// Type is a parsed header type.
type Type struct {
	Kind     Kind
	Optional bool
	Elem     *Type       // of an Array; a Tuple element makes rows in one flat array
	Fields   []Field     // of a Tuple
	Values   []EnumValue // of an Enum
	Pos      Pos
	Width    int
}

// Field is a named part of a tuple.
type Field struct {
	Name string
	Type Type
	Pos  Pos
}

// EnumValue is one name of an enum and its number on the wire.
type EnumValue struct {
	Name  string
	Value int64
	Pos   Pos
}

// Key is one @key or @keys line, or one field of a @keys line with parentheses.
type Key struct {
	Name     string
	Type     string // Redis type, or ""
	Fields   []Key  // of @keys with parentheses: n elements of so many KEYS entries each
	Template string // without quotes; "" when the caller passes the key
	Variadic bool
	Max      int
	Prose    string
	Pos      Pos
}

// Arg is one @arg line.
type Arg struct {
	Name     string
	Type     Type
	Min, Max *int64 // in the unit on the wire; uint bounds above MaxInt64 are not expressible
	Prose    string
	Pos      Pos
}

// Group is the @args line: n elements of len(Fields) ARGV entries each.
type Group struct {
	Name   string
	Tuple  bool // declared with parentheses: elements are structs
	Fields []Field
	Max    int
	Bytes  int
	Prose  string
	Pos    Pos
}

// Code is one @error line.
type Code struct {
	Name string
	Text string
	Pos  Pos
}

// Allow is one @allow line.
type Allow struct {
	Rule   string
	Reason string
	Pos    Pos
}

// Clause is a one-word tag with prose: @retry, @contract.
type Clause struct {
	Word  string
	Prose string
	Pos   Pos
}

// Script is one parsed file. Body is nil when the syntax is wrong.
type Script struct {
	File       string // lock_release.lua
	Stem       string // lock_release
	Domain     string // the folder of its domain, for a reference; "" for none
	GoName     string // LockRelease
	Source     string
	Doc        []string // prose lines, "" between paragraphs
	DocPos     Pos
	Retry      Clause
	Contract   Clause
	ReadOnly   bool
	Guard      string // the file that runs before it under lua.Guard; "" for none
	GuardPos   Pos
	Slots      Clause
	Merge      int // rows of one call at most; 0 where each call is a command
	MergePos   Pos
	Keys       []Key
	Args       []Arg
	Group      *Group
	Reply      *Type
	ReplyProse string
	ReplyPos   Pos
	Errors     []Code
	Cost       string
	Allows     []Allow
	Uses       []Clause // libraries of @uses
	Body       *luaast.Chunk

	accepted  map[string]bool        // rules of Allows that had something to accept
	targets   []string               // of the run
	elsewhere func(name string) bool // another file of the run declares the name; nil for none
	bare      bool                   // there is no header: only the body is judged
	partial   bool                   // a line of the header could not be read
	guardFile *Script                // the file of Guard; nil without one
	origin    string                 // the source, as generated files name it; "" for File
	from      []lineRun              // where its lines come from; nil where the source is what is embedded
}

// FixedKeys counts the keys before a variadic one.
func (s *Script) FixedKeys() int {
	if n := len(s.Keys); n > 0 && s.Keys[n-1].Variadic {
		return n - 1
	}
	return len(s.Keys)
}

// Elements are the keys that one element of the declaration is made of.
func (k *Key) Elements() []Key {
	if len(k.Fields) > 0 {
		return k.Fields
	}
	return []Key{*k}
}

// VariadicKey returns the @keys line, or nil.
func (s *Script) VariadicKey() *Key {
	if n := s.FixedKeys(); n < len(s.Keys) {
		return &s.Keys[n]
	}
	return nil
}

// repeats reports whether the runtime runs the script again after a lost reply.
func (s *Script) repeats() bool { return s.Retry.Word == "safe" || s.Retry.Word == "resume" }
