package luagen

import (
	"fmt"
	"strings"
)

// editorHead is the part of the definitions that does not depend on the commands.
const editorHead = `---@meta
-- What a script of Redis finds, for the Lua language server. Written by luagen editor.

---The keys of the call, as the caller passed them.
---@type string[]
KEYS = {}

---The arguments of the call: text, also where the caller passed numbers.
---@type string[]
ARGV = {}

---@alias redis.arg string|number
---@alias redis.reply string|integer|false|table

---@class redis.status
---@field ok string

---@class redis.error
---@field err string

redis = {
  LOG_DEBUG = 0,
  LOG_VERBOSE = 1,
  LOG_NOTICE = 2,
  LOG_WARNING = 3,
}

---An error for the caller, which begins with a code: return it.
---@param text string
---@return redis.error
function redis.error_reply(text) end

---@param text string
---@return redis.status
function redis.status_reply(text) end

---The SHA-1 of a text as 40 hex digits.
---@param text string
---@return string
function redis.sha1hex(text) end

---@param level integer
---@param ... string
function redis.log(level, ...) end
`

// editorReplies are what commands return to Lua; a missing value is false.
var editorReplies = map[string]string{
	"string|false": "GET GETDEL GETEX GETSET HGET LINDEX LPOP RPOP LMOVE RPOPLPUSH SPOP SRANDMEMBER RANDOMKEY ZSCORE " +
		"ZINCRBY " +
		"HINCRBYFLOAT INCRBYFLOAT DUMP HRANDFIELD ZRANDMEMBER",
	"integer": "APPEND BITCOUNT BITPOS COPY DBSIZE DECR DECRBY DEL EXISTS EXPIRE EXPIREAT EXPIRETIME HDEL HEXISTS " +
		"HINCRBY HLEN " +
		"HSET HSETNX HSTRLEN INCR INCRBY LINSERT LLEN LPUSH LPUSHX LREM MOVE MSETNX PERSIST PEXPIRE PEXPIREAT " +
		"PEXPIRETIME " +
		"PFADD PFCOUNT PTTL PUBLISH RENAMENX RPUSH RPUSHX SADD SCARD SDIFFSTORE SETBIT GETBIT SETNX SETRANGE " +
		"SINTERCARD " +
		"SINTERSTORE SISMEMBER SMOVE SREM STRLEN SUNIONSTORE TOUCH TTL UNLINK XACK XDEL XLEN XTRIM ZCARD ZCOUNT " +
		"ZINTERCARD " +
		"ZLEXCOUNT ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZDIFFSTORE ZINTERSTORE ZUNIONSTORE ZRANGESTORE",
	"integer|false": "ZRANK ZREVRANK",
	"string[]": "HGETALL HKEYS HVALS KEYS LRANGE SDIFF SINTER SMEMBERS SUNION TIME ZDIFF ZINTER ZRANGE ZRANGEBYLEX " +
		"ZRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZUNION ZPOPMIN ZPOPMAX",
	"(string|false)[]": "HMGET MGET ZMSCORE",
	"integer[]":        "SMISMEMBER",
	"string":           "GETRANGE SUBSTR ECHO",
	"redis.status":     "HMSET LSET LTRIM MSET PSETEX RENAME SETEX TYPE RESTORE",
}

// EditorFile is the definition file for the Lua language server: KEYS, ARGV, and redis.call by command.
func EditorFile() string {
	types := map[string]string{}
	for reply, names := range editorReplies {
		for name := range strings.FieldsSeq(names) {
			types[name] = reply
		}
	}
	var b strings.Builder
	b.WriteString(editorHead)
	for _, fn := range []string{"call", "pcall"} {
		if fn == "call" {
			b.WriteString("\n---Runs a command; its error ends the script. What is missing is false.\n")
		} else {
			b.WriteString("\n---Runs a command; its error is a table with err.\n")
		}
		for _, name := range wholeNames() {
			if c, _ := lookup(name); c.noscript != onAll {
				fmt.Fprintf(&b, "---@overload fun(command: '%s'%s): %s\n", name, parameters(c),
					resultOf(types[name], fn))
			}
		}
		fmt.Fprintf(&b,
			"---@param command string\n---@param ... redis.arg\n---@return redis.reply\nfunction redis.%s(command, "+
				"...) end\n", fn)
	}
	return b.String()
}

func resultOf(reply, fn string) string {
	if reply == "" {
		reply = "redis.reply"
	}
	if fn == "pcall" {
		reply += "|redis.error"
	}
	return reply
}

// parameters are as many as the command wants at least; more where it takes more.
func parameters(c command) string {
	n, more := c.arity-1, false
	if c.arity < 0 {
		n, more = -c.arity-1, true
	}
	var out strings.Builder
	for i := range n {
		name := fmt.Sprintf("arg%d", i+1)
		if len(c.keys) > 0 && c.keys[0].pos == i+1 && !c.keys[0].counted {
			name = "key"
		}
		fmt.Fprintf(&out, ", %s: redis.arg", name)
	}
	if more {
		out.WriteString(", ...: redis.arg")
	}
	return out.String()
}
