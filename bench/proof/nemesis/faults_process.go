package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

func (w *world) names(list []int) string {
	var names []string
	for _, i := range slices.Sorted(slices.Values(list)) {
		names = append(names, w.servers[i].Name)
	}
	return strings.Join(names, ", ")
}

// upOf returns the servers of a list that run.
func (w *world) upOf(list []int) []int {
	running := w.running()
	return slices.DeleteFunc(list, func(i int) bool { return !slices.Contains(running, i) })
}

func killNode(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	return killThese(w, []int{anyNode(random)})
}

func killCore(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	return killThese(w, []int{anyCore(random)})
}

func killSeveral(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	return killThese(w, several(random))
}

func killAll(w *world, _ *rand.Rand, _ time.Duration) (*fault, error) {
	return killThese(w, allServers())
}

func killThese(w *world, list []int) (*fault, error) {
	list = w.upOf(list)
	if err := w.kill(list); err != nil {
		return nil, err
	}
	return &fault{what: "killed " + w.names(list), effect: effect{gone: servers(list...)},
		end: func() error { return w.startAll(list) }}, nil
}

// stopPatience is the longest time for the clean stop of a server.
const stopPatience = 20 * time.Second

func stopServer(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	list := w.upOf([]int{anyServer(random)})
	for _, i := range list {
		w.stop(i)
	}
	return &fault{what: "stopped " + w.names(list), effect: effect{gone: servers(list...)},
		end: func() error { return w.startAll(list) }}, nil
}

// stop ends a server with SIGTERM.
func (w *world) stop(server int) {
	w.mu.Lock()
	w.mu.down[server] = true
	w.mu.Unlock()
	begin := time.Now()
	if err := w.servers[server].Stop(stopPatience); err != nil {
		w.journal.finding("%v", err)
	}
	if p := w.servers[server].Process(); p.ExitCode() > 0 {
		w.proof.Violation("%s was stopped with SIGTERM and ended with code %d after %v:\n%s",
			w.servers[server].Name, p.ExitCode(), time.Since(begin).Round(ms), p.LogTail(1000))
	}
}

func pauseNode(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	return pauseThese(w, []int{anyNode(random)})
}

func pauseCore(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	return pauseThese(w, []int{anyCore(random)})
}

func pauseSeveral(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	return pauseThese(w, several(random))
}

func pauseThese(w *world, list []int) (*fault, error) {
	list = w.upOf(list)
	var failures []error
	for _, i := range list {
		failures = append(failures, w.servers[i].Process().Pause())
	}
	resume := func() error {
		var failures []error
		for _, i := range list {
			failures = append(failures, w.servers[i].Process().Resume())
		}
		return errors.Join(failures...)
	}
	if err := errors.Join(failures...); err != nil {
		return nil, errors.Join(err, resume())
	}
	return &fault{what: fmt.Sprintf("paused %s", w.names(list)),
		effect: effect{gone: servers(list...)}, end: resume}, nil
}
