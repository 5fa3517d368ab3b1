package web_test

import (
	"net/http"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic"
	"github.com/luatomic/luatomic/luatomictest"
	"github.com/luatomic/luatomic/web"
)

// as is the page of a user that has the rules.
func (s *site) as(server *luatomictest.Server, opts *luatomic.AccessOptions) {
	s.t.Helper()
	opts.Prefix = s.prefix
	rules := []any{"ACL", "SETUSER", "page", "reset", "on", ">pw"}
	for _, rule := range luatomic.AccessRules(opts) {
		rules = append(rules, rule)
	}
	require.NoError(s.t, server.Client().Do(s.t.Context(), rules...).Err())
	client := server.Client(func(o *redis.Options) { o.Username, o.Password = "page", "pw" })
	s.handler = web.Handler(client, &web.Options{Prefix: s.prefix})
}

// A page whose user has the rights of a program may not search: it names the rights of a page, with which it may.
func TestAPageWithTooFewRightsNamesThem(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	s := newSiteOn(t, server.Client(), web.Options{})
	s.as(server, &luatomic.AccessOptions{})
	r := s.get("/locks")
	require.Equal(t, http.StatusForbidden, r.code)
	require.Contains(t, r.body, "luatomic acl --role page")
	require.Contains(t, r.body, "luatomic acl --audit")
	for _, enough := range []luatomic.AccessOptions{{Roles: []luatomic.Role{luatomic.RolePage}}, {Audit: true}} {
		s.as(server, &enough)
		s.ok("/locks")
	}
}

// A user that may not load scripts lacks no right after a restart of the server: somebody else loads them.
func TestScriptsThatAreNotLoadedAreNoLackOfRights(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	s := newSiteOn(t, server.Client(), web.Options{})
	s.as(server, &luatomic.AccessOptions{Roles: []luatomic.Role{luatomic.RolePage}, Preloaded: true})
	require.NoError(t, server.Client().ScriptFlush(t.Context()).Err())
	r := s.get("/queue?name=mail")
	require.Equal(t, http.StatusServiceUnavailable, r.code, r.body)
	require.Contains(t, r.body, "luatomic load")
}

// The page names a changed password as that, and not as missing rights.
func TestAWrongPasswordIsNoLackOfRights(t *testing.T) {
	t.Parallel()
	server := luatomictest.StartServer(t)
	s := newSiteOn(t, server.Client(), web.Options{})
	s.as(server, &luatomic.AccessOptions{Roles: []luatomic.Role{luatomic.RolePage}})
	require.NoError(t, server.Client().Do(t.Context(), "ACL", "SETUSER", "page", "resetpass", ">new").Err())
	r := s.get("/queue?name=mail")
	require.Equal(t, http.StatusServiceUnavailable, r.code, r.body)
	require.Contains(t, r.body, "does not accept the name and password")
}
