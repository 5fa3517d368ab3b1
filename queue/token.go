package queue

import (
	"errors"
	"fmt"

	queuescript "github.com/luatomic/luatomic/gen/queue"
	"github.com/luatomic/luatomic/internal/exact"
)

// ErrTokenReused reports that a push under a token has other jobs than the first push under that token. Nothing was
// added: the answer of the first push would say that these jobs are in.
var ErrTokenReused = errors.New("luatomic: the token belongs to other jobs: use another token, or pass the jobs of " +
	"the first push in their order, with the same ids, kinds, unique names and bodies")

// tokenError adds the cure to the refusal of a token that belongs to other jobs.
func tokenError(err error) error {
	if errors.Is(err, queuescript.ErrPushReused) || errors.Is(err, queuescript.ErrPushManyReused) {
		return fmt.Errorf("%w: %w", ErrTokenReused, err)
	}
	return err
}

// addJobs adds a queue and its jobs, whose ids are set. It has what a job is: its place, id, kind, unique name and
// body. It leaves out what a program that repeats the push works out anew: times, limits and headers such as a trace
// context.
func addJobs(to exact.Sum, ready string, jobs []Job) {
	to.Add(ready)
	to.Count(len(jobs))
	for i := range jobs {
		j := &jobs[i]
		to.Add(j.ID, j.Kind, j.Unique)
		to.AddBytes(j.Body)
	}
}
