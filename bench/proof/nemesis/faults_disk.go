package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
)

func fillOne(w *world, random *rand.Rand, _ time.Duration) (*fault, error) {
	return fillThese(w, []int{anyServer(random)})
}

func fillAll(w *world, _ *rand.Rand, _ time.Duration) (*fault, error) {
	return fillThese(w, allServers()[cores:])
}

// fillThese fills disks. Servers with a full disk refuse writes until they have transferred their
// leaderships to servers with free space. So requests of clients may be refused.
func fillThese(w *world, list []int) (*fault, error) {
	empty := func() error {
		var failures []error
		for _, i := range list {
			failures = append(failures, w.disks[i].MakeRoom())
		}
		return errors.Join(failures...)
	}
	for _, i := range list {
		if err := w.disks[i].Fill(); err != nil {
			return nil, err
		}
	}
	return &fault{what: "the disk is full of " + w.names(list),
		effect: effect{apart: servers(list...)}, end: empty}, nil
}

func stopDisk(w *world, random *rand.Rand, hold time.Duration) (*fault, error) {
	return stutterOf(w, anyServer(random), fleet.Stutter{Still: hold}, hold)
}

func slowDisk(w *world, random *rand.Rand, hold time.Duration) (*fault, error) {
	return stutterOf(w, anyServer(random), fleet.Stutter{Still: between(random, 20*ms, 500*ms),
		Works: between(random, ms, 50*ms)}, hold)
}

// stutterOf stalls a disk. A goroutine of its own ends the stall in any case, because a process
// that waits for a disk cannot even be killed.
func stutterOf(w *world, server int, s fleet.Stutter, hold time.Duration) (*fault, error) {
	what := fmt.Sprintf("the disk of %s stalls", w.servers[server].Name)
	if s.Works > 0 {
		what += fmt.Sprintf(" for %v, works for %v, and so on", s.Still.Round(ms),
			s.Works.Round(ms))
	}
	done, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- w.disks[server].StallFor(s, hold, done) }()
	return &fault{what: what, effect: effect{gone: servers(server)}, end: func() error {
		close(done)
		return <-stopped
	}}, nil
}
