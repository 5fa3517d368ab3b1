package luagen

import "strings"

// initialisms are the words that Go writes in capitals.
var initialisms = map[string]string{
	"acl": "ACL", "api": "API", "cpu": "CPU", "db": "DB", "dns": "DNS", "fifo": "FIFO", "html": "HTML", "http": "HTTP",
	"https": "HTTPS", "id": "ID", "ids": "IDs", "io": "IO", "ip": "IP", "json": "JSON", "lifo": "LIFO", "rpc": "RPC",
	"sha": "SHA",
	"sql": "SQL", "tcp": "TCP", "tls": "TLS", "ttl": "TTL", "ttls": "TTLs", "udp": "UDP", "uri": "URI", "url": "URL",
	"urls": "URLs", "utc": "UTC", "uuid": "UUID", "uuids": "UUIDs", "xml": "XML",
}

// camel turns lock_id and lockId into LockID.
func camel(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(humps(name), "_") {
		if up, ok := initialisms[strings.ToLower(word)]; ok {
			b.WriteString(up)
		} else if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// humps parts the words of a name in camel case by underscores: jobId gives job_Id.
func humps(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if i > 0 && name[i] >= 'A' && name[i] <= 'Z' && name[i-1] >= 'a' && name[i-1] <= 'z' {
			b.WriteByte('_')
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

// codeCamel turns the error code NOT_HELD into NotHeld.
func codeCamel(code string) string { return camel(strings.ToLower(code)) }

// plural is the Go field for a variadic declaration: job and jobs both give Jobs, entry gives Entries.
func plural(name string) string {
	switch stem, isY := strings.CutSuffix(name, "y"); {
	case strings.HasSuffix(name, "s"):
		return camel(name)
	case isY && !strings.ContainsAny(name[max(0, len(stem)-1):len(stem)], "aeiou"):
		return camel(stem + "ies")
	}
	return camel(name + "s")
}

// singular is the element's Go name: jobs gives Job, status stays Status.
func singular(name string) string { return camel(singularName(name)) }

// singularName is singular in the header's own spelling: ids gives id.
func singularName(name string) string {
	for _, keep := range []string{"ss", "us", "is"} {
		if strings.HasSuffix(name, keep) {
			return name
		}
	}
	if stem, ok := strings.CutSuffix(name, "ies"); ok && len(stem) > 1 {
		return stem + "y"
	}
	return strings.TrimSuffix(name, "s")
}

// lowerFirst makes an exported name unexported: LockRelease gives lockRelease, RPCSend gives rpcSend.
func lowerFirst(name string) string {
	n := 0
	for n < len(name) && name[n] >= 'A' && name[n] <= 'Z' {
		n++
	}
	if n > 1 && n < len(name) {
		n--
	}
	return strings.ToLower(name[:n]) + name[n:]
}
