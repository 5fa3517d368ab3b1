package lua

import "github.com/redis/go-redis/v9"

// Args returns the arguments of a command as text and numbers, for a hook that shows them. The runtime passes most
// arguments of a script by reference, to save allocations, and a hook that prints cmd.Args() prints addresses.
// Arguments can be secret: truncate or omit what must not be in a trace. The script is named by its digest.
func Args(cmd redis.Cmder) []any {
	args := cmd.Args()
	out := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case *string:
			out[i] = *v
		case *int64:
			out[i] = *v
		case []byte:
			out[i] = string(v)
		case *raw:
			out[i] = string(*v)
		case *program:
			out[i] = v.file().SHA
		default:
			out[i] = arg
		}
	}
	return out
}
