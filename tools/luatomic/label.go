package main

import "github.com/luatomic/luatomic/internal/show"

// label is the name of a queue or a lock, or the id of a job, in an output. JSON has only characters: each byte that is
// no part of one would become U+FFFD, and two names would be one.
type label string

func (l label) String() string               { return show.Label(string(l)) }
func (l label) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// readLabels replaces arguments that are written as an output writes names by those names.
func (s *session) readLabels() {
	for i, text := range s.args {
		s.args[i] = show.Named(text)
	}
	s.tag = show.Named(s.tag)
}
