package web

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// secure sets the headers of every answer. Nothing comes from another host, nothing is inline, no other page may hold
// this one in a frame.
func secure(header http.Header) {
	header.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	// Not no-referrer: with it a browser hides the origin of a form from the page itself, and over plain HTTP nothing
	// else says that the form is its own.
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "interest-cohort=()")
}

// roleOf is what the request may do.
func (h *handler) roleOf(r *http.Request) (Role, error) {
	host := hostOf(r.Host)
	if len(h.opts.Hosts) > 0 && (host == "" || !slices.Contains(h.opts.Hosts, host)) {
		return Nobody, faultf(http.StatusForbidden, "Use a name of Options.Hosts, or add it there.",
			"This page is not for the host %q.", host)
	}
	role := Operator
	if h.opts.Authorize != nil {
		if err := caught(func() error { role = h.opts.Authorize(r); return nil }); err != nil {
			return Nobody, err
		}
	} else if why := notLocal(r, len(h.opts.Hosts) > 0); why != "" {
		return Nobody, faultf(http.StatusForbidden, "Set Options.Authorize to serve others.",
			"This page is for its own machine only, and %s.", why)
	}
	if !h.opts.Write {
		role &= Viewer | Bodies
	}
	if !role.Has(View) {
		return Nobody, faultf(http.StatusForbidden, "Ask the operator of this page for the right.",
			"You may not see this page.")
	}
	return role, nil
}

// IsLocal reports whether a request comes from this machine: the connection comes from a loopback address, no header
// says that a proxy forwarded it (Forwarded, Via, X-Forwarded-*, X-Real-IP and the like), and the Host header is
// localhost or a loopback address. The handler uses it when Options.Authorize is nil. It is for an Authorize that gives
// this machine more rights than others. IsLocal cannot recognise a proxy on this machine that sends none of these
// headers and this machine's name as the Host: let it add X-Forwarded-For.
func IsLocal(r *http.Request) bool { return notLocal(r, false) == "" }

// notLocal says why a request is not of this machine. A name in the Host header that is not of this machine is how a
// page of another site reaches a local one: its name is made to point here.
func notLocal(r *http.Request, hostChecked bool) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	switch {
	case err != nil || !from.Addr().Unmap().IsLoopback():
		return "the connection comes from another one"
	case isForwarded(r.Header):
		return "a proxy forwarded the request"
	case !hostChecked && !isLocalHost(hostOf(r.Host)):
		return "the address names another one"
	}
	return ""
}

// isForwarded reports a header that proxies add, also without a value.
func isForwarded(header http.Header) bool {
	for name := range header {
		switch {
		case strings.HasPrefix(name, "X-Forwarded-"):
			return true
		case slices.Contains(proxyHeaders, name):
			return true
		}
	}
	return false
}

var proxyHeaders = []string{"Cf-Connecting-Ip", "Forwarded", "True-Client-Ip", "Via", "X-Client-Ip", "X-Forwarded",
	"X-Original-Forwarded-For", "X-Real-Ip"}

// hostOf is the host without its port and brackets.
func hostOf(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

func isLocalHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// checkMethod says that a GET changes nothing, and that a change comes from a page of this origin.
func (h *handler) checkMethod(r *http.Request, changes bool) error {
	switch {
	case !changes && r.Method != http.MethodGet && r.Method != http.MethodHead:
		return &fault{Status: http.StatusMethodNotAllowed, What: "This address only shows something.", Cure: "Use GET.",
			allow: "GET, HEAD"}
	case changes && r.Method != http.MethodPost:
		return &fault{Status: http.StatusMethodNotAllowed, What: "This address changes something.",
			Cure: "Use the form of the page, or POST.", allow: http.MethodPost}
	}
	if err := h.origin.Check(r); err != nil {
		return faultf(http.StatusForbidden, "Send the form from this page itself; let a proxy before it keep the Host.",
			"The request comes from another site.")
	}
	return nil
}

// need is the error for a right that the request does not have.
func (h *handler) need(role, right Role, what string) error {
	switch {
	case role.Has(right):
		return nil
	case !h.opts.Write && right&(Jobs|Queues|Locks) != 0:
		return faultf(http.StatusForbidden, "Start it with Options.Write, or luatomic web --write.",
			"This page is read-only: it may not %s.", what)
	}
	return faultf(http.StatusForbidden, "Ask the operator of this page for the right.", "You may not %s.", what)
}
