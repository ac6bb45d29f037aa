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

// separate is three nodes in processes of their own, as those of a real cluster are: none waits for
// a processor that the language's scheduler gave to another or to the client, while the machine has
// one to spare.
type separate struct {
	dir       string
	addresses []string
	servers   []*actor
	stop      context.CancelCauseFunc
}

const separateServers = 3

// startSeparate starts some that are ready. 0 is the usual clock bound.
func startSeparate(ctx context.Context, parent string, bound time.Duration) (*separate, error) {
	addresses, err := process.FreeAddresses(separateServers)
	if err != nil {
		return nil, err
	}
	return startSeparateAt(ctx, parent, bound, addresses)
}

// startSeparateAt starts one at each address. The first is the core, too.
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
		// Before any starts: one that ends takes the directory of all along if nothing is in it.
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
	// All at once: when one ends early, the others may wait for it for ever.
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

// used is the processor time that all have used so far; 0: unknown.
func (s *separate) used() (sum time.Duration) {
	for _, a := range s.servers {
		sum += a.used()
	}
	return sum
}

// queued asks how long goroutines have waited for a processor since this was asked last: in the
// server where it is longest.
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

// burn has them compute, with so many processors together.
func (s *separate) burn(processors float64) error {
	var errs []error
	for _, a := range s.servers {
		errs = append(errs, a.burn(processors/float64(len(s.servers))))
	}
	return errors.Join(errs...)
}

// finish has them end, and returns what each printed last.
func (s *separate) finish() (said []string, err error) {
	for _, a := range s.servers {
		_ = a.in.Close() // all at the same time: those that are left would miss those that are gone
	}
	var errs []error
	for _, a := range s.servers {
		line, err := a.finish()
		said, errs = append(said, line), append(errs, err)
	}
	return said, errors.Join(errs...)
}

func (s *separate) close() {
	s.stop(nil) // kills them: their data goes now
	for _, a := range s.servers {
		_ = a.wait()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// serveOne is one of the servers, until it is wanted no more: the process that started it has
// closed its standard input, or ended, which does the same. It has a directory to itself.
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
	defer told.Wait() // what it was told may be a computation
	defer cancel()
	memory.TuneCollector(memory.Collector{GOGC: os.Getenv("GOGC"),
		GOMEMLIMIT: os.Getenv("GOMEMLIMIT"), Limit: embedded.MemoryLimit(0)})
	defer func() { // in case that the process that started it cannot do so any more
		_ = os.RemoveAll(dir)
		_ = os.Remove(filepath.Dir(dir)) // that of all servers, by the last of them
	}()
	server, err := embedded.StartServer(ctx, embedded.ServerConfig{Dir: dir, Listen: listen,
		Core: core, MaxOffset: time.Duration(nanoseconds)})
	if err != nil {
		return err
	}
	defer func() { _ = server.Close(context.Background()) }() // its data goes now
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
