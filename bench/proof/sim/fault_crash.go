package sim

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// crash takes the power from a server. Each unsynced block survives with the probability Unsynced,
// in percent.
type crash struct {
	Server   Target
	Unsynced int `most:"100"`
}

var _ = register("crash", 20, 12*time.Second, func(d *Dice) crash {
	return crash{d.Server(), d.Of(0, 50, 100)}
})

// Begin implements Effect.
func (f crash) Begin(w *World) (string, func() string) {
	server, ok := w.find(f.Server)
	if !ok {
		return absent(f.Server)
	}
	w.kill(f.Unsynced, server)
	return fmt.Sprintf("server %d crashed", server), func() string {
		w.start(server)
		return fmt.Sprintf("server %d started", server)
	}
}

// powerCut takes the power from all servers at once. The servers start again at different times.
type powerCut struct {
	Unsynced int `most:"100"`
	Apart    time.Duration
}

var _ = register("power-cut", 2, 3*time.Second, func(d *Dice) powerCut {
	return powerCut{d.Of(0, 50, 100), d.Between(0, 100*time.Millisecond)}
})

// Begin implements Effect.
func (f powerCut) Begin(w *World) (string, func() string) {
	all := make([]int, w.Cluster.Servers())
	for i := range all {
		all[i] = i
	}
	w.kill(f.Unsynced, all...)
	return "all servers crashed", func() string {
		for i := range w.Cluster.Servers() {
			time.Sleep(f.Apart)
			w.start(i)
		}
		return "all servers started"
	}
}

// stop stops a server as its operator would.
type stop struct{ Server Target }

var _ = register("stop", 5, 10*time.Second, func(d *Dice) stop { return stop{d.Server()} })

// Begin implements Effect.
func (f stop) Begin(w *World) (string, func() string) {
	server, ok := w.find(f.Server)
	if !ok {
		return absent(f.Server)
	}
	w.stop(server)
	return fmt.Sprintf("server %d stopped", server), func() string {
		w.start(server)
		return fmt.Sprintf("server %d started", server)
	}
}

// stop stops servers as their operator would, all at the same time.
func (w *World) stop(servers ...int) {
	w.power <- struct{}{}
	defer func() { <-w.power }()
	for _, server := range servers {
		w.checkHealthy(server)
		w.ending(server)
	}
	var stopping sync.WaitGroup
	for _, server := range servers {
		stopping.Go(func() {
			if err := w.Cluster.Stop(server); err != nil {
				w.Violation("stopping server %d: %v", server, err)
			}
		})
	}
	stopping.Wait()
}

// kill takes the power from servers, at the same moment.
func (w *World) kill(unsynced int, servers ...int) {
	w.power <- struct{}{}
	defer func() { <-w.power }()
	for _, server := range servers {
		w.checkHealthy(server)
		w.ending(server)
		if w.Cluster.Process(server) != nil {
			w.count("crashes")
		}
	}
	w.Cluster.KillAll(unsynced, servers...)
}

// start starts a server that is down. A server whose disk is made to fail may refuse to start. Such
// a server stays down until the disk is mended.
func (w *World) start(server int) {
	w.power <- struct{}{}
	defer func() { <-w.power }()
	if w.Cluster.Process(server) != nil {
		return
	}
	err := w.Cluster.Run(server)
	refused := errors.Is(err, kvtest.ErrDisk) && w.isExcused(server)
	w.keepDown(server, refused)
	if err != nil && !refused && !isRetired(err) {
		w.Violation("server %d does not start: %v", server, err)
	}
}
