// Package testdata holds the jobs that the demo works on: payloads as Sidekiq 6.4.1 and 8.1.7 wrote them, those of its
// schedule with a short delay.
package testdata

import _ "embed"

// Jobs is jobs.ndjson, one job a line in the form that the command line's push reads.
//
//go:embed jobs.ndjson
var Jobs string
