package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/deploy/embedded/memory"
)

// separate is three nodes in separate processes, as in a real cluster. No node waits for a
// processor that Go's scheduler gave to another node or to the client while the machine has an idle
// processor.
type separate struct {
	dir       string
	addresses []string
	servers   []*actor
	stop      context.CancelCauseFunc
}

const separateServers = 3

// startSeparate starts nodes and waits until they are ready. A bound of 0 means the default clock
// bound.
func startSeparate(ctx context.Context, parent string, bound time.Duration) (*separate, error) {
	addresses, err := process.FreeAddresses(separateServers)
	if err != nil {
		return nil, err
	}
	return startSeparateAt(ctx, parent, bound, addresses)
}

// startSeparateAt starts one node at each address. The first node is also the core.
func startSeparateAt(ctx context.Context, parent string, bound time.Duration, addresses []string) (
	_ *separate, err error) {
	s := &separate{addresses: addresses}
	ctx, s.stop = context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dir, err = os.MkdirTemp(parent, "txncost"); err != nil {
		return nil, err
	}
	directory := func(i int) string { return filepath.Join(s.dir, fmt.Sprint("server-", i+1)) }
	for i := range addresses {
		// This comes before any node starts: a node that ends removes the parent directory if that is
		// empty.
		if err := os.Mkdir(directory(i), 0o700); err != nil {
			return nil, err
		}
	}
	for i, address := range addresses {
		a, err := begin(ctx, roleServer, directory(i), address, fmt.Sprint(bound.Nanoseconds()),
			addresses[0])
		if err != nil {
			return nil, err
		}
		s.servers = append(s.servers, a)
	}
	// All are waited for concurrently: when one ends early, the others may wait for it for ever.
	var waiting sync.WaitGroup
	for i, a := range s.servers {
		waiting.Go(func() {
			if _, err := a.line(); err != nil {
				s.stop(fmt.Errorf("server %d ended before it was ready: %w", i+1, err))
			}
		})
	}
	waiting.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Endpoints returns the addresses of all servers.
func (s *separate) Endpoints() []string { return s.addresses }

// used returns the processor time of all nodes so far, or 0 if it is unknown.
func (s *separate) used() (sum time.Duration) {
	for _, a := range s.servers {
		sum += a.used()
	}
	return sum
}

// queued returns the longest time that goroutines of a server have waited for a processor since the
// last call.
func (s *separate) queued() (longest time.Duration, err error) {
	for _, a := range s.servers {
		line, err := a.queued()
		if err != nil {
			return 0, err
		}
		microseconds, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			return 0, err
		}
		longest = max(longest, time.Duration(microseconds)*time.Microsecond)
	}
	return longest, nil
}

// burn makes all nodes compute, with a number of processors in total.
func (s *separate) burn(processors float64) error {
	var errs []error
	for _, a := range s.servers {
		errs = append(errs, a.burn(processors/float64(len(s.servers))))
	}
	return errors.Join(errs...)
}

// finish makes all nodes end, and returns the last line of each.
func (s *separate) finish() (said []string, err error) {
	for _, a := range s.servers {
		_ = a.in.Close() // all end at once: a node left over would miss the others
	}
	var errs []error
	for _, a := range s.servers {
		line, err := a.finish()
		said, errs = append(said, line), append(errs, err)
	}
	return said, errors.Join(errs...)
}

func (s *separate) close() {
	s.stop(nil) // kills them; their data is deleted now
	for _, a := range s.servers {
		_ = a.wait()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// serveOne runs one server until the parent process closes its standard input, or ends, which has
// the same effect. The server has its own directory.
func serveOne(ctx context.Context, dir, listen, bound string, core []string) error {
	nanoseconds, err := strconv.ParseInt(bound, 10, 64)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var told sync.WaitGroup
	told.Go(func() {
		obey(ctx)
		cancel()
	})
	defer told.Wait() // a command may be a long computation
	defer cancel()
	memory.TuneCollector(memory.Collector{GOGC: os.Getenv("GOGC"),
		GOMEMLIMIT: os.Getenv("GOMEMLIMIT"), Limit: embedded.MemoryLimit(0)})
	defer func() { // in case the parent process cannot do so any more
		_ = os.RemoveAll(dir)
		_ = os.Remove(filepath.Dir(dir)) // the last server removes the common directory
	}()
	server, err := embedded.StartServer(ctx, embedded.ServerConfig{Dir: dir, Listen: listen,
		Core: core, MaxOffset: time.Duration(nanoseconds)})
	if err != nil {
		return err
	}
	defer func() { _ = server.Close(context.Background()) }() // its data is deleted now
	if err := server.WaitReady(ctx); err != nil {
		return err
	}
	fmt.Println(listen)
	select {
	case <-server.Done():
		return server.Err()
	case <-ctx.Done():
		return nil
	}
}
