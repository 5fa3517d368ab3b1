package main

import (
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/queue"
)

const ofSidekiq = "--dialect=sidekiq7"

// onJobs runs a command on an evil job of that state, and again when the job is in no such state.
func onJobs(verb string, state queue.State) func(*hostile) {
	return func(h *hostile) {
		h.job(queue.Leased)
		words := verbOfJobs(verb)
		h.shows(exitFailed, append(words, evilName, "another")...)
		if verb != "cancel" {
			h.shows(exitFailed, append(words, evilName, evilName)...)
		}
		h.prefix += "2:"
		h.job(state)
		h.shows(exitDone, append(words, evilName, evilName)...)
	}
}

// verbOfJobs are the words of a command of jobs, with the flag that it needs.
func verbOfJobs(verb string) []string {
	words := []string{"jobs", verb}
	if verb == "reschedule" {
		words = append(words, "--in", "1h")
	}
	return slices.Clip(words)
}

// onSidekiq runs a command of jobs on a queue of Sidekiq.
func onSidekiq(verb string, more ...string) func(*hostile) {
	return func(h *hostile) {
		h.sidekiq()
		words := verbOfJobs(verb)
		h.shows(exitFailed, append(words, evilJSON, "none", ofSidekiq)...)
		h.shows(exitDone, append(append(words, evilJSON, ofSidekiq), more...)...)
	}
}

// onQueue runs a command on an evil queue.
func onQueue(code int, words ...string) func(*hostile) {
	return func(h *hostile) {
		h.job(queue.Dead)
		h.shows(code, words...)
	}
}

// hostileCases has, for each command, what it shows of others.
var hostileCases = map[string]func(*hostile){
	"demo": func(h *hostile) { silent("demo", "--file", h.file(`{"body":"`+evilText+`"}`))(h) },
	"push": func(h *hostile) {
		h.shows(exitFailed, "push", evilName, "--file", h.file(`{"evil\u001b[2J\u202e":1}`+"\n"+evilText))
		h.shows(exitUsage, "push", evilArg, "--file", "none")
		h.shows(exitFailed, "push", "q", "--file", evilName)
	},
	"push, sidekiq": func(h *hostile) {
		h.shows(exitUsage, "push", evilArg, ofSidekiq)
		silent("push", "q", ofSidekiq, "--file",
			h.file(`{"class":"A","queue":"evil\u001b[2J","evil\u001b":1}`+"\n"+evilText))(h)
	},
	"promote": onQueue(exitDone, "promote", evilName),
	"promote, redisinaction": func(h *hostile) {
		require.NoError(h.t, h.redis.ZAdd(h.t.Context(), h.prefix+"delayed:", redis.Z{Score: 1, Member: evilText},
			redis.Z{Score: 2, Member: `["evil","q","evil\u001b",3]`},
			redis.Z{Score: 3, Member: `["1","evil` + "\u202e" + `","n",[]]`}).Err())
		silent("promote", inRIA)(h)
	},
	"promote, sidekiq": func(h *hostile) {
		h.sidekiq()
		silent("promote", ofSidekiq)(h)
	},
	"consume": func(h *hostile) {
		h.job(queue.Ready)
		h.shows(exitDone, "consume", evilName, "--attempts", "1", "--drain", "--", "false")
	},
	"consume, sidekiq": func(h *hostile) {
		h.sidekiq()
		h.until(exitInterrupted, "bid", "consume", evilJSON, ofSidekiq, "--", "false")
	},
	"lock": func(h *hostile) {
		h.held()
		h.shows(exitTryLater, "lock", evilName, "--", "true")
		h.shows(exitTryLater, "lock", evilName, "--write", "--wait", "10ms", "--", "true")
	},
	"lock, dialects": func(h *hostile) {
		for dialect, key := range map[string]string{"plain": evilJSON, "redisinaction": "lock:" + evilJSON} {
			require.NoError(h.t, h.redis.Set(h.t.Context(), h.prefix+key, evilText, time.Hour).Err())
			h.shows(exitTryLater, "lock", evilJSON, "--dialect", dialect, "--wait", "10ms", "--", "true")
		}
	},
	"queues ls": func(h *hostile) {
		q, err := queue.New(h.redis, evilName, &queue.Options{Prefix: h.prefix, Tag: evilName})
		require.NoError(h.t, err)
		_, err = q.Push(h.t.Context(), queue.Job{})
		require.NoError(h.t, err)
		h.shows(exitDone, "queues", "ls")
	},
	"queues ls, sidekiq": func(h *hostile) {
		h.sidekiq()
		h.shows(exitDone, "queues", "ls", ofSidekiq)
	},
	"queues workers": func(h *hostile) {
		h.job(queue.Ready)
		working(h.t, h.redis, h.prefix, evilName)
		h.shows(exitDone, "queues", "workers")
	},
	"queue pause":  onQueue(exitDone, "queue", "pause", evilName),
	"queue resume": onQueue(exitDone, "queue", "resume", evilName),
	"queue limit":  onQueue(exitDone, "queue", "limit", evilName, "9"),
	"queue trim":   onQueue(exitDone, "queue", "trim", evilName, "--keep", "1"),
	"queue audit":  onQueue(exitDone, "queue", "audit", evilName),
	"jobs ls": func(h *hostile) {
		h.job(queue.Dead)
		h.shows(exitDone, "jobs", "ls", evilName)
		h.shows(exitFailed, "jobs", "ls", evilName+"none")
	},
	"jobs ls, sidekiq": func(h *hostile) {
		h.sidekiq()
		h.shows(exitDone, "jobs", "ls", evilJSON, ofSidekiq)
	},
	"jobs show": func(h *hostile) {
		h.job(queue.Dead)
		h.shows(exitDone, "jobs", "show", evilName, evilName)
		h.shows(exitFailed, "jobs", "show", evilName, "none")
	},
	"jobs show, sidekiq":    onSidekiq("show", evilJSON+"1", evilJSON+"3"),
	"jobs requeue":          onJobs("requeue", queue.Dead),
	"jobs requeue, sidekiq": onSidekiq("requeue", evilJSON+"3"),
	"jobs cancel":           onJobs("cancel", queue.Ready),
	"jobs reclaim":          onQueue(exitDone, "jobs", "reclaim", evilName),
	"jobs release": func(h *hostile) {
		h.job(queue.Leased)
		h.shows(exitFailed, "jobs", "release", evilName, "none")
		h.shows(exitFailed, "jobs", "release", evilName, evilName, "--fence", "1")
		h.shows(exitDone, "jobs", "release", evilName, evilName)
	},
	"jobs bury":                onJobs("bury", queue.Ready),
	"jobs delete":              onJobs("delete", queue.Dead),
	"jobs delete, sidekiq":     onSidekiq("delete", evilJSON+"3"),
	"jobs reschedule":          onJobs("reschedule", queue.Scheduled),
	"jobs reschedule, sidekiq": onSidekiq("reschedule", evilJSON+"2"),
	"locks ls": func(h *hostile) {
		h.held()
		for _, kind := range []string{"lock", "rw", "semaphore"} {
			h.shows(exitDone, "locks", "ls", "--kind", kind)
		}
	},
	"locks show": func(h *hostile) {
		h.held()
		for _, kind := range []string{"lock", "rw", "semaphore"} {
			h.shows(exitDone, "locks", "show", evilName, "--kind", kind)
		}
	},
	"locks release": func(h *hostile) {
		token := h.held()
		h.shows(exitFailed, "locks", "release", evilName, "--fence", "1")
		h.shows(exitDone, "locks", "release", evilName)
		h.shows(exitFailed, "locks", "release", evilName)
		h.shows(exitFailed, "locks", "release", evilName, "--kind", "rw", "--token", evilArg)
		h.shows(exitDone, "locks", "release", evilName, "--kind", "rw", "--token", token)
	},
	"locks steal": func(h *hostile) {
		h.held()
		h.shows(exitDone, "locks", "steal", evilName)
	},
	"rpc serve": func(h *hostile) {
		h.until(exitInterrupted, "Ctrl-C ends it", "rpc", "serve", evilName, "--bus", evilName, "--node", evilName,
			"--", "true")
	},
	"rpc call": func(h *hostile) {
		h.node()
		bus := []string{"--bus", evilName}
		for _, call := range []struct {
			code int
			args []string
		}{
			{exitDone, []string{evilName, "1"}},
			{exitFailed, []string{evilName}},
			{exitDone, []string{evilName, "1", "--gather"}},
			{exitFailed, []string{evilName, "--gather"}},
			{exitDone, []string{evilName + "s", "1", "--stream"}},
			{exitFailed, []string{evilName + "s", "--stream"}},
			{exitTryLater, []string{evilName + "none"}},
		} {
			h.shows(call.code, append(append([]string{"rpc", "call"}, call.args...), bus...)...)
		}
	},
	"rpc nodes": func(h *hostile) {
		h.node()
		h.shows(exitDone, "rpc", "nodes", "--bus", evilName)
		h.shows(exitDone, "rpc", "nodes", "--bus", evilName+"none")
	},
	"rpc top": func(h *hostile) {
		h.node()
		h.shows(exitDone, "rpc", "top", "--bus", evilName)
	},
	"stats": func(h *hostile) {
		h.job(queue.Dead)
		h.shows(exitDone, "stats", evilName)
		h.until(exitInterrupted, "PUSHED/S", "stats", evilName, "--watch")
		h.shows(exitFailed, "stats", evilName+"none")
	},
	"stats, sidekiq": func(h *hostile) {
		h.sidekiq()
		h.shows(exitDone, "stats", ofSidekiq)
	},
	"top": func(h *hostile) {
		h.job(queue.Ready)
		working(h.t, h.redis, h.prefix, evilName)
		h.held()
		h.node()
		p := h.onTerminal(200, 50, "top", "--every", "100ms")
		for _, head := range []string{"QUEUE", "JOB", "LOCK", "NODE"} {
			p.seen(head)
		}
		p.sound()
		p.types("q")
		p.ends(exitDone)
	},
	"web": (*hostile).web,
	// The names of settings and their values are the server's own.
	"doctor": silent("doctor"),
	"doctor, sidekiq": func(h *hostile) {
		h.sidekiq()
		h.shows(exitFailed, "doctor", ofSidekiq)
	},
	"acl":           silent("acl"),
	"acl, sidekiq":  silent("acl", ofSidekiq),
	"load":          silent("load"),
	"load, sidekiq": silent("load", ofSidekiq),
	"version":       silent("version"),
	"completion":    silent("completion", "bash"),
	"man":           silent("man"),
}
