package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args []string
		says string
	}{
		"command":      {[]string{"bogus"}, `no command "bogus"; luatomic help lists them`},
		"near command": {[]string{"psuh", "q"}, `there is no command "psuh"; did you mean push?`},
		"near second": {[]string{"locks", "relaese"},
			`there is no command "locks relaese"; did you mean release?`},
		"near first": {[]string{"lockss", "ls"}, "did you mean locks?"},
		"near flag": {[]string{"lock", "x", "--wiat", "1s", "--", "true"},
			"not defined: -wiat; did you mean --wait?"},
		"near global": {[]string{"--prefx", "a:", "push"}, "did you mean --prefix?"},
		"no duration": {[]string{"push", "q", "--in", "soon"},
			`invalid value "soon" for flag -in: parse error; write a duration with its unit, such as 30s`},
		"no unit":   {[]string{"lock", "x", "--ttl", "5", "--", "true"}, "; write a duration with its unit"},
		"no number": {[]string{"consume", "q", "-c", "many", "--", "true"}, "parse error; write a whole number"},
		"too great": {[]string{"locks", "release", "x", "--fence", "99999999999999999999"},
			"value out of range; write a whole number"},
		"no boolean": {[]string{"push", "q", "--raw=please"},
			`push: invalid value "please" for -raw: parse error; write --raw alone`},
		"no value": {[]string{"stats", "q", "--redis"}, "flag needs an argument: -redis; write --redis URL"},
		"no interval": {[]string{"stats", "q", "--watch=x"},
			`invalid value "x" for -watch: write an interval with its unit, such as 2s`},
		"command as flag": {[]string{"--version"}, "; write luatomic version"},
		"short word":      {[]string{"help", "nope"}, `no command "nope"; luatomic help lists them`},
		"call no method":  {[]string{"rpc", "call"}, "the method is missing; name it"},
		"no arguments": {[]string{"queues", "ls", "x"},
			`this command takes no arguments, but there are 1: ["x"]; leave them out`},
		"global flag":      {[]string{"--bogus", "push"}, "flag provided but not defined"},
		"flag":             {[]string{"push", "q", "--bogus"}, "flag provided but not defined"},
		"help of bogus":    {[]string{"help", "bogus"}, `no command "bogus"`},
		"help of too much": {[]string{"help", "push", "mail"}, `no command "push mail"; write luatomic help push`},
		"push no queue":    {[]string{"push"}, "the queue is missing"},
		"push two queues":  {[]string{"push", "a", "b"}, "there are 2 arguments"},
		"push bad name":    {[]string{"push", "a{b"}, "brace"},
		"push bad tag":     {[]string{"push", "q", "--tag", "{t}"}, `tag "{t}" holds a brace`},
		"stats bad tag":    {[]string{"stats", "q", "--tag", "{t}"}, `tag "{t}" holds a brace`},
		"bad prefix":       {[]string{"push", "q", "--prefix", "a{b"}, "brace"},
		"push in and at":   {[]string{"push", "q", "--in", "1s", "--at", "2030-01-01T00:00:00Z"}, "both --in and --at"},
		"push skip":        {[]string{"push", "q", "--skip", "-1"}, "--skip -1 is below zero"},
		"push in past":     {[]string{"push", "q", "--in", "-1s"}, "--in"},
		"push at":          {[]string{"push", "q", "--at", "noon"}, "RFC 3339"},
		"dialect":          {[]string{"push", "q", "--dialect", "x"}, "the dialects here are native, "},
		"dialect promote":  {[]string{"promote", "q", "--dialect", "x"}, "the dialects here are native, "},
		"dialect consume": {[]string{"consume", "q", "--dialect", "x", "--", "true"},
			"the dialects here are native, sidekiq4"},
		"dialect lock": {[]string{"lock", "q", "--dialect", "x", "--", "true"}, "the dialects here are native, "},
		"ria raw": {[]string{"push", "q", "--dialect", "redisinaction", "--raw"},
			"--raw: not in the dialect redisinaction"},
		"ria at": {[]string{"push", "q", "--dialect", "redisinaction", "--at", "2030-01-01T00:00:00Z"},
			"--at: not in the dialect"},
		"ria promote q": {[]string{"promote", "q", "--dialect", "redisinaction"},
			"all queues are promoted together"},
		"ria lock flags": {[]string{"lock", "x", "--dialect", "redisinaction", "--read", "--note", "n", "--", "true"},
			"--note, --read: not in the dialect"},
		"ria lock ttl": {[]string{"lock", "x", "--dialect", "redisinaction", "--ttl", "1ms", "--", "true"},
			"--ttl 1ms is too short"},
		"ria lock none": {[]string{"lock", "--dialect", "redisinaction", "--", "true"}, "the lock is missing"},
		"ria lock two":  {[]string{"lock", "a", "b", "--dialect", "redisinaction", "--", "true"}, "2 arguments"},
		"hero lock ttl": {[]string{"lock", "x", "--dialect", "actionhero", "--ttl", "0", "--", "true"},
			"--ttl 0s is too short"},
		"hero heal": {[]string{"lock", "x", "--dialect", "actionhero", "--heal", "1s", "--", "true"},
			"--heal is for the dialect redisinaction"},
		"hero era": {[]string{"rpc", "call", "m", "--dialect", "actionhero", "--era", "x"},
			"--era x is none of the eras; write one of callback, promise, promise18"},
		"hero native": {[]string{"rpc", "nodes", "--channel", "x"}, "are for --dialect actionhero"},
		"hero prefix": {[]string{"rpc", "nodes", "--dialect", "actionhero", "--prefix", "x:"},
			"name the channel with --channel"},
		"hero call flags": {[]string{"rpc", "call", "m", "--dialect", "actionhero", "--bus", "b", "--to", "n"},
			"--bus, --to: not in the dialect actionhero"},
		"hero serve flags": {[]string{"rpc", "serve", "m", "--dialect", "actionhero", "--stream", "--", "true"},
			"--stream: not in the dialect actionhero"},
		"hero arity":  {[]string{"rpc", "call", "m", "--arity", "1"}, "--arity is for"},
		"plain fence": {[]string{"lock", "x", "--fence", "--", "true"}, "--fence is for the dialect plain"},
		"plain note": {[]string{"lock", "x", "--dialect", "plain", "--note", "n", "--", "true"},
			"--note: not in the dialect plain"},
		"sidekiq consume": {[]string{"consume", "q", "--dialect", "sidekiq7", "--drain", "--attempts", "3", "--",
			"true"}, "--attempts, --drain: not in the dialect sidekiq7"},
		"heal": {[]string{"lock", "a", "--heal", "1s", "--", "true"},
			"--heal is for the dialect redisinaction"},
		"promote nothing":  {[]string{"promote"}, "name at least one queue"},
		"stats nothing":    {[]string{"stats"}, "name at least one queue"},
		"stats interval":   {[]string{"stats", "q", "--watch=1us"}, "--watch 1µs is too short"},
		"consume no CMD":   {[]string{"consume", "q"}, "write it after --"},
		"consume empty":    {[]string{"consume", "q", "--"}, "write it after --"},
		"consume bare CMD": {[]string{"consume", "q", "cat"}, "write it after --"},
		"consume no tag":   {[]string{"consume", "a", "b", "--", "true"}, "2 queues without a --tag"},
		"consume many": {append(strings.Fields("consume --tag x a b c d e f g h i j k l m n o p q"), "--", "true"),
			"17 queues; one consumer takes from 16 at most"},
		"consume weight": {[]string{"consume", "a,0", "--", "true"}, "a weight is a whole number from 1 to 1000"},
		"consume twice":  {[]string{"consume", "a", "a,2", "--tag", "x", "--", "true"}, `queue "a" is named twice`},
		"consume tag": {[]string{"consume", "a", "--tag", "x", "--dialect", "sidekiq7", "--", "true"},
			"--tag: not in the dialect sidekiq7"},
		"push tag": {[]string{"push", "a", "--tag", "x", "--dialect", "sidekiq7"},
			"--tag: not in the dialect sidekiq7"},
		"push task tag": {[]string{"push", "a", "--tag", "x", "--dialect", "redisinaction"},
			"--tag: not in the dialect redisinaction"},
		"promote tag": {[]string{"promote", "--tag", "x", "--dialect", "sidekiq7"},
			"--tag: not in the dialect sidekiq7"},
		"consume -c":       {[]string{"consume", "q", "-c", "0", "--", "true"}, "-c 0"},
		"consume attempts": {[]string{"consume", "q", "--attempts", "0", "--", "true"}, "--attempts 0"},
		"consume lease":    {[]string{"consume", "q", "--lease", "1ms", "--", "true"}, "--lease 1ms is too short"},
		"consume backoff":  {[]string{"consume", "q", "--backoff", "-1s", "--", "true"}, "--backoff"},
		"lock no CMD":      {[]string{"lock", "x"}, "write it after --"},
		"lock no name":     {[]string{"lock", "--", "true"}, "the lock is missing"},
		"lock ttl":         {[]string{"lock", "x", "--ttl", "0", "--", "true"}, "--ttl"},
		"lock wait":        {[]string{"lock", "x", "--wait", "-1s", "--", "true"}, "--wait"},
		"lock max-hold":    {[]string{"lock", "x", "--max-hold", "-1s", "--", "true"}, "--max-hold -1s is too short"},
		"lock delay": {[]string{"lock", "x", "--lock-delay", "-1s", "--", "true"},
			"--lock-delay -1s is too short"},
		"lock replicas": {[]string{"lock", "x", "--replicas", "-1", "--", "true"},
			"--replicas -1 is out of range; write 0 or more"},
		"lock note": {[]string{"lock", "x", "--note", strings.Repeat("x", 1025), "--", "true"},
			"--note has 1025 bytes, at most 1024"},
		"lock read write": {[]string{"lock", "x", "--read", "--write", "--", "true"}, "both --read and --write"},
		"lock read delay": {[]string{"lock", "x", "--read", "--lock-delay", "1s", "--", "true"},
			"are for plain locks"},
		"lock write repl.": {[]string{"lock", "x", "--write", "--replicas", "1", "--", "true"}, "are for plain locks"},
		"locks":            {[]string{"locks"}, "locks is not a whole command; add one of ls, show, release, steal"},
		"locks bogus": {[]string{"locks", "bogus"},
			`no command "locks bogus"; those of locks are ls, show, release, steal`},
		"locks ls two":     {[]string{"locks", "ls", "a", "b"}, "quote it"},
		"locks show none":  {[]string{"locks", "show"}, "the lock is missing"},
		"locks show name":  {[]string{"locks", "show", "a{b"}, "brace"},
		"locks show watch": {[]string{"locks", "show", "x", "--watch=1us"}, "--watch 1µs is too short"},
		"locks release":    {[]string{"locks", "release"}, "the lock is missing"},
		"locks fence": {[]string{"locks", "release", "x", "--fence", "-1"},
			"the number that luatomic locks show prints"},
		"locks fence text": {[]string{"locks", "release", "x", "--fence", "one"}, "invalid value"},
		"locks kind":       {[]string{"locks", "ls", "--kind", "x"}, "the kinds are lock, rw and semaphore"},
		"locks token":      {[]string{"locks", "release", "x", "--token", "t"}, "named by --fence"},
		"locks no token":   {[]string{"locks", "release", "x", "--kind", "rw"}, "--token is missing"},
		"locks fence kind": {[]string{"locks", "release", "x", "--kind", "rw", "--token", "t", "--fence", "3"},
			"--fence is for plain locks"},
		"locks steal ttl":  {[]string{"locks", "steal", "x", "--ttl", "0"}, "--ttl"},
		"doctor argument":  {[]string{"doctor", "x"}, "no arguments"},
		"acl argument":     {[]string{"acl", "x"}, "no arguments"},
		"acl user":         {[]string{"acl", "--user", "a b"}, "a name without spaces"},
		"version argument": {[]string{"version", "x"}, "no arguments"},
		"load argument":    {[]string{"load", "x"}, "no arguments"},
		"rpc":              {[]string{"rpc"}, "rpc is not a whole command; add one of serve, call, nodes, top"},
		"rpc bogus": {[]string{"rpc", "bogus"},
			`no command "rpc bogus"; those of rpc are serve, call, nodes, top`},
		"serve no method":  {[]string{"rpc", "serve", "--", "true"}, "the method is missing"},
		"serve no CMD":     {[]string{"rpc", "serve", "m"}, "write it after --"},
		"serve bare CMD":   {[]string{"rpc", "serve", "m", "cat"}, "there are 2 arguments"},
		"serve method":     {[]string{"rpc", "serve", "a{b", "--", "true"}, "brace"},
		"serve bus":        {[]string{"rpc", "serve", "m", "--bus", "a{b", "--", "true"}, "brace"},
		"serve node":       {[]string{"rpc", "serve", "m", "--node", "a{b", "--", "true"}, "brace"},
		"serve -c":         {[]string{"rpc", "serve", "m", "-c", "0", "--", "true"}, "-c 0 is out of range"},
		"serve grace":      {[]string{"rpc", "serve", "m", "--grace", "-1s", "--", "true"}, "--grace -1s is too short"},
		"serve connection": {[]string{"rpc", "serve", "m", "--connection", "a{b", "--", "true"}, "brace"},
		"serve dialect": {[]string{"rpc", "serve", "m", "--dialect", "x", "--", "true"},
			"the dialects here are native, actionhero"},
		"call nothing":  {[]string{"rpc", "call"}, "the method is missing"},
		"call not JSON": {[]string{"rpc", "call", "m", "text"}, "a text needs quotes of its own: '\"text\"'"},
		"call three":    {[]string{"rpc", "call", "m", "{", "}"}, "quote the JSON"},
		"call method":   {[]string{"rpc", "call", "m\n", "1"}, "control character"},
		"call timeout":  {[]string{"rpc", "call", "m", "1", "--timeout", "0"}, "--timeout 0s is too short"},
		"call key":      {[]string{"rpc", "call", "m", "1", "--key", "a{b"}, "brace"},
		"call to":       {[]string{"rpc", "call", "m", "1", "--to", strings.Repeat("x", 200)}, "at most"},
		"call two ways": {[]string{"rpc", "call", "m", "1", "--gather", "--to", "n"},
			"--gather and --to do not go together"},
		"call again": {[]string{"rpc", "call", "m", "1", "--idempotent", "--cast"},
			"--cast and --idempotent do not go together"},
		"call key gather": {[]string{"rpc", "call", "m", "1", "--gather", "--key", "k"},
			"--gather and --key do not go together"},
		"call all": {[]string{"rpc", "call", "m", "1", "--all"}, "--all is for --cast"},
		"call dialect": {[]string{"rpc", "call", "m", "1", "--dialect", "x"},
			"the dialects here are native, actionhero"},
		"nodes argument": {[]string{"rpc", "nodes", "b"}, "the bus is named with --bus"},
		"top interval":   {[]string{"rpc", "top", "--watch=1us"}, "--watch 1µs is too short"},
		"demo argument":  {[]string{"demo", "jobs.ndjson"}, "--file"},
		"URL scheme":     {[]string{"stats", "q", "--redis", "http://u:secret@h"}, "rediss://HOST:PORT"},
		"URL port":       {[]string{"stats", "q", "--redis", "redis://u:secret@h:port"}, "rediss://HOST:PORT"},
		"URL option": {[]string{"stats", "q", "--redis", "redis://u:secret@h?bogus=1"},
			"unexpected option; write"},
		"URL without //": {[]string{"stats", "q", "--redis", "redis:u:secret@h:6379"},
			"// is missing before the host"},
		"URL of no host": {[]string{"stats", "q", "--redis", "redis://:6379"}, "the host is missing"},
		"URL of users":   {[]string{"stats", "q", "--redis", "redis://h?addr=u:secret@h2"}, "addr is HOST:PORT"},
		"URL parameters": {[]string{"stats", "q", "--redis", "redis://h?master_name=m&password=secret;x"},
			"its parameters cannot be read"},
		"URL bad escape": {[]string{"stats", "q", "--redis", "redis://h?master_name=m&password=secret%xy"},
			"its parameters cannot be read"},
		"URL parameter": {[]string{"stats", "q", "--redis", "redis://h?password=a&secret"},
			"unexpected option; write"},
		"URL password": {[]string{"stats", "q", "--redis", "redis://:secret/x@h"},
			"in a password / ? # @ % are written %2F %3F %23 %40 %25"},
		"URL escape": {[]string{"stats", "q", "--redis", "redis://:a%secret@h"},
			"in a password / ? # @ % are written %2F"},
		"URL database": {[]string{"stats", "q", "--redis", "redis://h:1/secret@h"},
			"invalid database number; write"},
		"URL of a slash":   {[]string{"stats", "q", "--redis", "redis://:1/secret@h"}, "the host is missing; write"},
		"stats number":     {[]string{"stats", "q", "--watch", "5"}, "an interval with its unit"},
		"stats no time":    {[]string{"stats", "q", "--watch", "0"}, "--watch 0s is too short"},
		"stats one":        {[]string{"stats", "q", "--watch=1"}, "an interval with its unit"},
		"promote interval": {[]string{"promote", "q", "--watch", "2s"}, "no interval here"},
		"call number":      {[]string{"rpc", "call", "m", "-5"}, "begins with - last, after --"},
		"URL of a cluster": {[]string{"stats", "q", "--redis", "http://u:secret@h?addr=a:1"}, "rediss://HOST:PORT"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr := said(t, exitUsage, test.args...)
			require.Empty(t, stdout)
			require.Contains(t, stderr, test.says)
			require.True(t, strings.HasPrefix(stderr, "luatomic: "), stderr)
			require.Contains(t, stderr, "\nusage: luatomic ")
			require.NotContains(t, stderr, "secret")
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"help"}, {"-h"}, {"--help"}, {"locks", "-h"}, {"help", "locks"}, {"rpc", "-h"},
		{"help", "rpc"}} {
		stdout, stderr := said(t, exitDone, args...)
		for _, cmd := range commands() {
			require.Contains(t, stdout, "\n  "+cmd.name+" ")
		}
		require.Empty(t, stderr)
	}
	for _, cmd := range commands() {
		words := strings.Fields(cmd.name)
		for _, args := range [][]string{append(slices.Clone(words), "-h"), append([]string{"help"}, words...),
			append(slices.Clone(words), "x", "--help")} {
			stdout, _ := said(t, exitDone, args...)
			require.Contains(t, stdout, "usage: "+cmd.usageLine())
			require.Contains(t, stdout, "--redis URL")
			require.Contains(t, stdout, "\nexample:\n  ")
		}
	}
}
