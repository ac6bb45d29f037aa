package console

import (
	"context"
	"errors"
	"net/http"
)

// Demo has the additional functions of the console of a demo: to break the cluster, and to load it.
// Its methods may be called from any number of goroutines.
type Demo interface {
	// Servers tells the state of each server, in order.
	Servers() []DemoServer
	// Stop ends a server as kill -9 does. Isolate disconnects it from the others, and Join ends the
	// isolation. Start starts a server that was stopped. Servers are counted from 1.
	Stop(ctx context.Context, server int) error
	Isolate(ctx context.Context, server int) error
	Join(ctx context.Context, server int) error
	Start(ctx context.Context, server int) error
	// Add starts one more data node.
	Add(ctx context.Context) error
	// StartLoad starts clients that read and write until StopLoad.
	StartLoad(ctx context.Context) error
	StopLoad(ctx context.Context) error
	// Load returns the state of the load. A zero DemoLoad means that there is none.
	Load() DemoLoad
}

// DemoServer is a server of a demo.
type DemoServer struct {
	// Server is the number of the server, from 1. Node is the id of its data node. It is 0 if there is
	// none, or if the id is not known.
	Server  int    `json:"server"`
	Node    uint64 `json:"node,omitempty"`
	Address string `json:"address"`
	// State is "running", "stopped" or "isolated".
	State string `json:"state"`
	// Core: the server is a member of the core.
	Core bool `json:"core"`
}

// DemoLoad is the load of a demo.
type DemoLoad struct {
	Running bool `json:"running"`
	// Done is the recent number of operations per second. Failed is the number of operations that have
	// failed since the beginning, after all retries.
	Done   uint64 `json:"done"`
	Failed uint64 `json:"failed"`
	// SlowestMillis is the longest duration of an operation in the last seconds.
	SlowestMillis uint64 `json:"slowestMillis"`
}

// doDemo presses a button of a demo.
func (c *Console) doDemo(w http.ResponseWriter, r *http.Request, _ *viewer) {
	demo := c.config.Demo
	if demo == nil {
		refuse(w, http.StatusNotFound, "this is no demo")
		return
	}
	var given struct{ Server int }
	if !read(w, r, &given) {
		return
	}
	of := func(f func(context.Context, int) error) func(context.Context) error {
		return func(ctx context.Context) error { return f(ctx, given.Server) }
	}
	action, ok := map[string]func(context.Context) error{
		"stop": of(demo.Stop), "isolate": of(demo.Isolate), "join": of(demo.Join),
		"start": of(demo.Start), "add": demo.Add,
		"load": demo.StartLoad, "unload": demo.StopLoad,
	}[r.PathValue("action")]
	if !ok {
		refuse(w, http.StatusNotFound, "there is no such button")
		return
	}
	c.finish(w, r, func(ctx context.Context) (any, error) { return struct{}{}, action(ctx) })
}

var errBusy = errors.New("this server answers as many requests of consoles as it can: try again")

// finish runs an action within the limits, and answers.
func (c *Console) finish(w http.ResponseWriter, r *http.Request,
	do func(context.Context) (any, error)) {
	select {
	case c.questions <- struct{}{}:
		defer func() { <-c.questions }()
	default:
		refuse(w, http.StatusServiceUnavailable, errBusy.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), asking)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	answer, err := do(ctx)
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, sentence(err))
		return
	}
	reply(w, answer)
}
