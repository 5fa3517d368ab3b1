package lua

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"sync"

	"github.com/luatomic/luatomic/internal/send"
)

// rewritten has the texts that a test runs in place of others, by the digest of the text that they replace.
var rewritten sync.Map

// hooked returns the text that runs for t: t itself, unless a test looks into the scripts.
func (t Text) hooked(s *Script) Text {
	if send.RewriteScript == nil || t.Source == nil {
		return t
	}
	if have, ok := rewritten.Load(t.SHA); ok {
		return have.(Text)
	}
	source := send.RewriteScript(s.Name, s.SHA, *t.Source, s.Place)
	out := Text{Guard: t.Guard, Source: &source}
	if t.Guard != nil && send.RewriteGuard != nil {
		guard := send.RewriteGuard(digest(*t.Guard), *t.Guard)
		out.Guard = &guard
	}
	out.SHA = digest(out.String())
	have, _ := rewritten.LoadOrStore(t.SHA, out)
	return have.(Text)
}

// Place names a line of the script's text by its source: scripts/part/now_us.lua:3. Lines that a server names, in
// errors and in its log, are lines of the text.
func (s *Script) Place(line int) string {
	file, n := place(s.Lines, line)
	return cmp.Or(file, s.Name) + ":" + strconv.Itoa(n)
}

func digest(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// observe tells a test which client is about to send.
func observe(client Client) Client {
	if send.SeeClient != nil {
		send.SeeClient(client)
	}
	return client
}
