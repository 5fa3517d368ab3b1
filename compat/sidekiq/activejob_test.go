package sidekiq_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/compat/sidekiq"
)

// A payload of Active Job 6.1 on Sidekiq 6.4, and one of Rails 7.1 with what it added.
const (
	railsHead = `{"retry":true,"queue":"mail",` +
		`"class":"ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper","wrapped":"GreetJob","args":[`
	railsJob = `{"job_class":"GreetJob","job_id":"0f0b9a62-0b6e-4a3e-8f5e-7d1f7f4e2c11","provider_job_id":null,` +
		`"queue_name":"mail","priority":null,"arguments":[{"_aj_globalid":"gid://shop/User/7"},"é",2.0,` +
		`{"_aj_serialized":"ActiveJob::Serializers::SymbolSerializer","value":"soon"},` +
		`{"_aj_serialized":"ActiveJob::Serializers::TimeWithZoneSerializer",` +
		`"value":"2026-11-22T13:00:00.5Z","time_zone":"UTC"},` +
		`{"_aj_serialized":"ActiveJob::Serializers::DurationSerializer","value":600,"parts":[]},` +
		`[{"_aj_globalid":"gid://shop/User/8"}],` +
		`{"urgent":true,"by":{"_aj_globalid":"gid://shop/User/9"},"_aj_ruby2_keywords":["urgent","by"]}],` +
		`"executions":1,"exception_executions":{"[Net::ReadTimeout]":1},"locale":"de","timezone":"Europe/Berlin",` +
		`"enqueued_at":"2026-11-22T12:59:59.123456789Z","scheduled_at":null}`
	railsTail = `],"jid":"0123456789abcdef01234567","created_at":1795230010.0290926,"enqueued_at":1795230010.029114}`
)

func TestJobsOfActiveJobHaveTypedArguments(t *testing.T) {
	t.Parallel()
	s := newSite(t, sidekiq.V7)
	s.enqueue("mail", railsHead+railsJob+railsTail, payload("mail", "plain", ""))
	got := make(chan *sidekiq.Delivery, 2)
	note := func(_ context.Context, j *sidekiq.Delivery) error {
		got <- j
		return nil
	}
	s.work(s.d, &sidekiq.WorkOptions{Queues: []sidekiq.Queue{{Name: "mail"}}, Concurrency: 1},
		sidekiq.Handlers{"HardJob": note, "GreetJob": note}.Perform)
	job, err := (<-got).ActiveJob()
	require.NoError(t, err)
	var user sidekiq.GlobalID
	var text string
	var factor, seconds float64
	var when sidekiq.Symbol
	var at time.Time
	var others []sidekiq.GlobalID
	var options struct {
		Urgent bool
		By     sidekiq.GlobalID
	}
	require.NoError(t, job.Scan(&user, &text, &factor, &when, &at, &seconds, &others, &options))
	app, model, id := user.Parts()
	require.Equal(t, []string{"shop", "User", "7"}, []string{app, model, id})
	require.Equal(t, []any{"é", 2.0, sidekiq.Symbol("soon"), 600.0}, []any{text, factor, when, seconds})
	require.Equal(t, time.Date(2026, 11, 22, 13, 0, 0, 5e8, time.UTC), at)
	require.Equal(t, []sidekiq.GlobalID{"gid://shop/User/8"}, others)
	require.True(t, options.Urgent)
	require.Equal(t, sidekiq.GlobalID("gid://shop/User/9"), options.By)
	require.ErrorIs(t, job.Scan(&user), sidekiq.ErrScan, "the number of arguments")
	job.Arguments = nil
	require.Equal(t, sidekiq.ActiveJob{Class: "GreetJob", Queue: "mail", ID: "0f0b9a62-0b6e-4a3e-8f5e-7d1f7f4e2c11",
		Locale: "de", Timezone: "Europe/Berlin", Executions: 1,
		EnqueuedAt: time.Date(2026, 11, 22, 12, 59, 59, 123456789, time.UTC)}, job)
	_, err = (<-got).ActiveJob()
	require.ErrorIs(t, err, sidekiq.ErrActiveJob)
}

func TestScanNamesASerializerOfTheApplication(t *testing.T) {
	t.Parallel()
	job := sidekiq.ActiveJob{Arguments: json.RawMessage(`[{"a":[{"_aj_serialized":"MoneySerializer","amount":1}]}]`)}
	var any map[string]any
	err := job.Scan(&any)
	require.ErrorIs(t, err, sidekiq.ErrScan)
	require.ErrorContains(t, err, `the serializer "MoneySerializer"`)
}

func TestAJobForActiveJobIsInItsForm(t *testing.T) {
	t.Parallel()
	args, err := sidekiq.Args(sidekiq.GlobalID("gid://shop/User/7"), 2.0, sidekiq.Symbol("soon"),
		sidekiq.RubyTime{Time: time.Date(2026, 11, 22, 13, 0, 0, 5, time.UTC)}, sidekiq.Keywords{"urgent": true})
	require.NoError(t, err)
	job, err := sidekiq.ActiveJob{Class: "GreetJob", Queue: "mail", Arguments: args, ID: "1", Timezone: "UTC",
		EnqueuedAt: time.Date(2026, 11, 22, 13, 0, 0, 0, time.UTC)}.Job()
	require.NoError(t, err)
	f := newFleet(t, sidekiq.Options{Version: sidekiq.V7})
	_, err = f.d.Push(f.ctx, job)
	require.NoError(t, err)
	queued := f.queue("mail")
	require.Len(t, queued, 1)
	require.Contains(t, queued[0],
		`"class":"ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper","args":[{"job_class":"GreetJob",`+
			`"job_id":"1","provider_job_id":null,"queue_name":"mail","priority":null,`+
			`"arguments":[{"_aj_globalid":"gid://shop/User/7"},2.0,`+
			`{"_aj_serialized":"ActiveJob::Serializers::SymbolSerializer","value":"soon"},`+
			`{"_aj_serialized":"ActiveJob::Serializers::TimeSerializer","value":"2026-11-22T13:00:00.000000005Z"},`+
			`{"_aj_ruby2_keywords":["urgent"],"urgent":true}],"executions":0,"exception_executions":{},"locale":"en",`+
			`"timezone":"UTC","enqueued_at":"2026-11-22T13:00:00.000000000Z"}]`)
	require.Contains(t, queued[0], `"wrapped":"GreetJob"`)

	for _, bad := range []sidekiq.ActiveJob{{}, {Class: "A\xff"}, {Class: "A", Arguments: json.RawMessage(`{}`)}} {
		_, err := bad.Job()
		require.Error(t, err)
	}
}

// Each text of a job is checked: encoding/json would write another one.
func TestAnActiveJobWhoseTextIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	const bad = "a\xff"
	for _, job := range []sidekiq.ActiveJob{
		{Class: bad}, {Class: "A", Queue: bad}, {Class: "A", ID: bad}, {Class: "A", Locale: bad},
		{Class: "A", Timezone: bad}, {Class: "A", Arguments: json.RawMessage(`["` + bad + `"]`)},
	} {
		_, err := job.Job()
		require.ErrorIs(t, err, sidekiq.ErrEncoding, "%q", job)
	}
}
