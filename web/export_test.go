package web

import (
	"context"
	"net/http"
	"time"

	"github.com/luatomic/luatomic/lua"
	"github.com/luatomic/luatomic/rpc"
)

// JobsCursor is the cursor of a place in a list of jobs.
func JobsCursor(h http.Handler, tag, name, state string, at int) string {
	return h.(*handler).cursor(jobsList(tag, name, state), at)
}

// Rounded is a duration as a page shows it.
func Rounded(d time.Duration) string { return rounded(d) }

// FaultOf is what a page says of the error.
func FaultOf(err error) string { return new(handler).faultOf(err).What }

// SearchEnded is the outcome of a search whose time is over.
func SearchEnded(ctx context.Context, client lua.Client) (partial bool, _ error) {
	over, cancel := context.WithCancel(ctx)
	cancel()
	return (&handler{client: client}).searchEnded(ctx, over, over.Err(), false)
}

// Objects are the addresses that read, or that change something, with the parameters that name their object.
func Objects(h http.Handler, changes bool) map[string][]string {
	found := make(map[string][]string)
	for path, route := range h.(*handler).routes {
		if route.changes == changes {
			found[path] = route.object
		}
	}
	return found
}

// FormFor is how long a form for all scheduled jobs, or for a delay, is good.
const FormFor = formFor

// ChangeInSteps lets a request that counts or changes all jobs of a state make one step.
func ChangeInSteps(h http.Handler) { h.(*handler).countFor, h.(*handler).changeFor = 0, 0 }

// MethodRates are the rates of the methods that these nodes report.
func MethodRates(h http.Handler, live ...rpc.Node) map[string]float64 {
	rates := make(map[string]float64)
	for _, m := range h.(*handler).methodsOf("bus", live, Viewer) {
		rates[string(m.Method)] = float64(m.Rate)
	}
	return rates
}
