package send

import "github.com/redis/go-redis/v9"

// Ahead is the client for one call of a script. It sends a command before the script, on the same connection if both
// belong to one hash slot. Each retry sends the command again, so the command must be one that may run twice.
type Ahead struct {
	redis.UniversalClient
	New  func() redis.Cmder // makes the command of one attempt: a hook may replace its arguments
	Size int                // bytes of the command, which count in the round trip

	cmd redis.Cmder
}

// Next returns the command for the next attempt.
func (c *Ahead) Next() redis.Cmder {
	c.cmd = c.New()
	return c.cmd
}

// Err is the error of the command in the last attempt. It is valid once the call has returned a reply. After another
// end of the call the command may still be in use.
func (c *Ahead) Err() error { return c.cmd.Err() }
