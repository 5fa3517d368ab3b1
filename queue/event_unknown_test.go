package queue

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A job whose last call had no reply may be done: its JobError does not say that another worker gets it.
func TestAJobErrorSaysWhenNobodyKnowsWhatBecameOfTheJob(t *testing.T) {
	t.Parallel()
	d := &Delivery{ID: "j", queue: &Queue{name: "mail"}}
	o := outcome{delivery: d, err: errors.New("boom"), ran: true}
	require.ErrorContains(t, o.jobError(), "its lease is lost, another worker gets it")
	d.ending.Store(&ending{})
	require.ErrorContains(t, o.jobError(),
		"it is not known what became of it; if it is not done, another worker gets it")
	d.settled.Store(settledLost)
	require.ErrorContains(t, o.jobError(), "its lease is lost, another worker gets it")
}
