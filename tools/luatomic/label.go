package main

import "github.com/luatomic/luatomic/internal/show"

// label is the name of a queue, lock, bus, method or node, or the id of a job, in an output.
type label = show.Name

// readLabels replaces arguments that are written as an output writes names by those names.
func (s *session) readLabels() {
	for i, text := range s.args {
		s.args[i] = show.Named(text)
	}
	s.tag = show.Named(s.tag)
}
