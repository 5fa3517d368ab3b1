package luatomic_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/luatomic/luatomic/internal/testkit/scriptcase"
	"github.com/luatomic/luatomic/luatomictest"
)

// asText refuses what Redis 7.2.0 to 7.2.4 would send as another text than the other servers. They write a Lua number
// with eight zeros or more at its end as 9e+08, which is no integer and no value to read back by its digits. A number
// from 1e8 up has such zeros for some arguments. Scores are floats, which every server reads from both forms.
const asText = `local redis = setmetatable({}, {__index = redis})
do
  local scores = {
    ZADD = true, ZINCRBY = true, ZRANGEBYSCORE = true, ZREVRANGEBYSCORE = true, ZREMRANGEBYSCORE = true, ZCOUNT = true,
  }
  local server = getmetatable(redis).__index
  for _, name in ipairs({'call', 'pcall'}) do
    redis[name] = function(...)
      local command, byScore = string.upper((...)), false
      for i = 2, select('#', ...) do
        local value = select(i, ...)
        byScore = byScore or value == 'BYSCORE'
      end
      for i = 2, select('#', ...) do
        local value = select(i, ...)
        local isScore = scores[command] or command == 'ZRANGE' and byScore and i < 5
        if type(value) == 'number' and not isScore and not (math.abs(value) < 1e8) then
          error('NUMBER ' .. command .. ': argument ' .. i - 1 .. ' is the number ' .. value)
        end
      end
      return server[name](...)
    end
  end
end
`

// roundNumbers are numbers of ms or us, as users write them, with eight zeros at the end.
var roundNumbers = []string{"100000000", "900000000", "3600000000", "99999999"}

func TestNoScriptSendsALargeLuaNumber(t *testing.T) {
	t.Parallel()
	for name, calls := range scriptcase.RawCalls(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scriptcase.NewHostileServer(t)
			s.Prelude = asText
			for _, call := range calls {
				s.Open(call)
				for _, state := range []string{"empty", "filled", "called"} {
					sendRoundNumbers(t, s, state)
				}
			}
			require.Positive(t, s.Sent)
		})
	}
}

// sendRoundNumbers calls the script with each number replaced, and with all of them.
func sendRoundNumbers(t *testing.T, s *scriptcase.HostileServer, state string) {
	t.Helper()
	var numbers []int
	for i, arg := range s.Call.Args {
		if _, err := strconv.ParseFloat(arg, 64); err == nil && len(numbers) < 24 {
			numbers = append(numbers, i)
		}
	}
	for _, value := range roundNumbers {
		for at := range len(numbers) + 1 {
			args := slices.Clone(s.Call.Args)
			replaced := numbers
			if at < len(numbers) {
				replaced = numbers[at : at+1]
			}
			for _, i := range replaced {
				args[i] = value
			}
			s.Fill(state)
			s.Sent++
			if err := s.Run(s.Call.Keys, args).Err; err != nil {
				assert.NotContains(t, err.Error(), "NUMBER", "%s, %s, arguments from %v are %s", s.Call.Name, state,
					replaced, value)
			}
		}
	}
}

func TestTheImitationOfRedis72RefusesALargeLuaNumber(t *testing.T) {
	t.Parallel()
	c := luatomictest.StartServer(t).Client()
	for script, refused := range map[string]bool{
		`return redis.call('SET', KEYS[1], '', 'PX', math.max(ARGV[1], 60000))`:                       true,
		`return redis.pcall('PEXPIRE', KEYS[1], ARGV[1] + 0)`:                                         true,
		`return redis.call('SET', KEYS[1], '', 'PX', ARGV[1])`:                                        false,
		`redis.call('DEL', KEYS[1]) return redis.call('ZADD', KEYS[1], ARGV[1] + 0, 'a')`:             false,
		`return #redis.call('ZRANGE', KEYS[1], ARGV[1] + 0, 9e9, 'BYSCORE', 'LIMIT', 0, 7)`:           false,
		`return #redis.call('ZRANGE', KEYS[1], ARGV[1] + 0, 9e9, 'BYSCORE', 'LIMIT', 0, ARGV[1] + 0)`: true,
	} {
		err := c.Eval(t.Context(), asText+script, []string{"k"}, 100000000).Err()
		if err == redis.Nil {
			err = nil
		}
		assert.Equal(t, refused, err != nil, fmt.Sprint(script, ": ", err))
	}
}
