package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/luatomic/luatomic/compat/sidekiq"
	"github.com/luatomic/luatomic/lua"
)

// anySidekiq is the dialect of doctor that finds the version by the bytes.
const anySidekiq = "sidekiq"

// examineSidekiq checks what a live Sidekiq shows of itself against the dialect. It writes nothing.
func examineSidekiq(s *session, client lua.Client, dialect string, report func(checkResult) error) error {
	version := dialect
	if dialect == anySidekiq {
		version = "sidekiq7"
	}
	d, err := s.openSidekiq(client, version)
	if err != nil {
		return err
	}
	found, err := d.Inspect(s.signals.stop)
	if err != nil {
		return err
	}
	for _, r := range []checkResult{
		sidekiqKeys(&found), sidekiqNamespace(s.prefix, &found), sidekiqVersion(dialect, &found),
		sidekiqPayloads(&found),
		sidekiqMiddleware(&found), sidekiqWorkers(&found),
	} {
		if err := report(r); err != nil {
			return err
		}
	}
	return nil
}

// verdict returns a line of doctor; an empty cure means that the check passes.
func verdict(check, detail, cure string) checkResult {
	ok := cure == ""
	r := checkResult{Check: check, OK: &ok, Detail: detail}
	if !ok {
		r.Cure = &cure
	}
	return r
}

func sidekiqKeys(found *sidekiq.Inspection) checkResult {
	if len(found.WrongType) == 0 {
		return verdict("keys", "each key that was read has its type", "")
	}
	return verdict("keys", "keys of another type, which Sidekiq cannot use: "+strings.Join(found.WrongType, ", "),
		"rename or delete them, and find out what writes them")
}

func sidekiqNamespace(prefix string, found *sidekiq.Inspection) checkResult {
	detail := "keys without a namespace"
	if prefix != "" {
		detail = fmt.Sprintf("keys under %q", prefix)
	}
	switch {
	case found.Sampled > 0 || found.Processes > 0:
		return verdict("namespace", detail, "")
	case len(found.Namespaces) > 0:
		return verdict("namespace", detail+": no jobs and no processes",
			fmt.Sprintf("is it another one? --prefix %s:", strings.Join(found.Namespaces, ": or --prefix ")))
	}
	return checkResult{Check: "namespace", Detail: detail + ": no jobs and no processes, here or in another namespace"}
}

// sidekiqVersion compares the dialect with what processes report and with the form of times.
func sidekiqVersion(dialect string, found *sidekiq.Inspection) checkResult {
	detail := fmt.Sprintf("created_at in seconds (to 7): %d, in milliseconds (8): %d", found.Seconds,
		found.Milliseconds)
	if len(found.Versions) > 0 {
		detail = "processes report " + strings.Join(found.Versions, ", ") + "; " + detail
	}
	var fits []string
	for _, name := range sidekiqs {
		if sidekiqFits(sidekiqVersions[name], found) {
			fits = append(fits, name)
		}
	}
	switch {
	case found.Seconds+found.Milliseconds+len(found.Versions) == 0:
		return checkResult{Check: "dialect", Detail: "no payload and no process from which to know the version"}
	case len(fits) == 0:
		return verdict("dialect", detail, "two versions write to these keys: use --dialect sidekiq7, which both read")
	case dialect == anySidekiq:
		return verdict("dialect", detail+"; use --dialect "+strings.Join(fits, " or "), "")
	case !slices.Contains(fits, dialect):
		return verdict("dialect", detail, "use --dialect "+strings.Join(fits, " or "))
	}
	return verdict("dialect", detail, "")
}

// sidekiqFits reports whether nothing that was found contradicts the version.
func sidekiqFits(v sidekiq.Version, found *sidekiq.Inspection) bool {
	if v >= sidekiq.V8 && found.Seconds > 0 || v < sidekiq.V8 && found.Milliseconds > 0 {
		return false
	}
	for _, version := range found.Versions {
		if major, _, _ := strings.Cut(version, "."); major != strconv.Itoa(int(v)) {
			return false
		}
	}
	return true
}

func sidekiqPayloads(found *sidekiq.Inspection) checkResult {
	detail := fmt.Sprintf("of %d payloads %d cannot be read, %d are of Active Job; in quarantine: %d",
		found.Sampled, found.Broken, found.Wrapped, found.Quarantined)
	cure := ""
	if found.Broken+found.Quarantined > 0 {
		cure = "read them (ZRANGE schedule:quarantine 0 -1, retry:quarantine), and push back what you repaired"
	}
	return verdict("payloads", detail, cure)
}

func sidekiqMiddleware(found *sidekiq.Inspection) checkResult {
	if len(found.Fields) == 0 {
		return verdict("middleware", "no field whose middleware runs in Ruby only", "")
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(found.Fields)) {
		all = append(all, fmt.Sprintf("%s in %d", name, found.Fields[name]))
	}
	return verdict("middleware", "payloads with fields whose middleware runs in Ruby only: "+strings.Join(all, ", "),
		"a Go worker refuses these jobs; serve their queues from Ruby, or use --allow-field")
}

func sidekiqWorkers(found *sidekiq.Inspection) checkResult {
	detail := fmt.Sprintf("processes: %d; Go processes whose jobs nobody has put back: %d",
		found.Processes, found.Abandoned)
	cure := ""
	if found.Abandoned > 0 {
		cure = "start any Go worker: it puts them back within a minute"
	}
	return verdict("workers", detail, cure)
}
