package web

import "net/http"

// JobsCursor is the cursor of a place in a list of jobs.
func JobsCursor(h http.Handler, tag, name, state string, at int) string {
	return h.(*handler).cursor(jobsList(tag, name, state), at)
}

// FaultOf is what a page says of the error.
func FaultOf(err error) string { return new(handler).faultOf(err).What }
