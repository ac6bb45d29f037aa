package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/availability"
	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/links"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

const (
	cores, nodes = 3, 5
	// maxOffset is the bound on clock offsets that the servers use. It is the servers' default.
	maxOffset = 250 * time.Millisecond
	// electionTimeout is the servers' shortest election timeout, which is the default.
	electionTimeout = time.Second
	// recovery is the longest time that a cluster may take after the last fault to serve again, and to
	// make its replicas equal.
	recovery = 90 * time.Second
)

// fault is a fault that happens now.
type fault struct {
	what   string
	effect effect
	// end is called when the fault's time is over.
	end func() error
	// again, if not nil, is called after the duration next. Then again is called after each duration
	// that again has returned, until the end of the fault.
	next  time.Duration
	again func() (time.Duration, error)
}

// world is the cluster under test, with the actions on it. Servers count from 0, the core servers
// first. Its methods are called by the goroutine of the schedule. Other goroutines may use mu only.
type world struct {
	dir     string
	network links.Network
	layers  *layers
	disks   []*fleet.Disk // one for each server; empty if this machine has none
	cluster *fleet.Cluster
	admin   *fleet.Admin
	servers []*fleet.Server
	proof   *driver.Run
	journal *journal
	// pace counts the answers to the probes' writes.
	pace *availability.Pace
	// placed says where partitions were before the faults of this step.
	placed *placement

	// logs has a reader for each server's log.
	logs []*logReader

	mu struct {
		sync.Mutex
		// down has the servers that a fault has ended.
		down map[int]bool
	}
}

// newWorld creates the network, the disks and the cluster's configuration. It starts no server.
func newWorld(o options, dir string, j *journal) (_ *world, err error) {
	w := &world{dir: dir, journal: j, pace: availability.NewPace(probePartitions)}
	w.mu.down = make(map[int]bool)
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.network, err = chooseNetwork(o.network, j); err != nil {
		return nil, err
	}
	w.layers = newLayers(w.network)
	var names []string
	for i := range cores {
		names = append(names, fmt.Sprintf("core%d", i+1))
	}
	for i := range nodes {
		names = append(names, fmt.Sprintf("node%d", i+1))
	}
	w.disks, err = mountDisks(filepath.Join(dir, "disks"), names)
	switch {
	case errors.Is(err, fleet.ErrNoMount):
		j.say("disks: the machine's own; none can be filled or stopped (%v)", err)
	case err != nil:
		return nil, err
	default:
		j.say("disks: %d MiB for each server, %s", diskMegabytes, w.disks[0].Kind)
	}
	w.cluster, err = fleet.NewCluster(fleet.Layout{Binary: o.binary, Dir: dir, Cores: cores,
		Nodes: nodes, Configure: func(i int, s *fleet.Server) {
			host := links.Host(i)
			address := w.network.Address(host)
			s.Listen, s.HTTP = address.Listen, address.HTTP
			if address.Advertise != address.Listen {
				s.Advertise = address.Advertise
			}
			if len(w.disks) > 0 {
				s.Dir = filepath.Join(w.disks[i].Dir, "data")
			}
			s.Command = func(path string, args []string) (string,
				[]string) {
				return w.network.Command(host, path, args)
			}
			s.Flags = []string{
				"--http-debug", "all", "--clock-offset-file", w.clockFile(i), "--log-level", "info",
				"--max-offset", maxOffset.String(), "--min-free", minFree,
				// The sizes are small, so that tables are flushed, and so that followers that were away need
				// snapshots.
				"--cache", "32MiB", "--mem-table", "4MiB", "--log-mem-table", "4MiB",
				"--retain-log",
				"256KiB",
			}
		}})
	if err != nil {
		return nil, err
	}
	w.servers, w.admin = w.cluster.All(), &fleet.Admin{Cluster: w.cluster}
	for _, s := range w.servers {
		w.logs = append(w.logs, &logReader{path: s.Log})
	}
	return w, nil
}

// chooseNetwork returns namespaces if the machine can have them, and proxies otherwise.
func chooseNetwork(wanted string, j *journal) (links.Network, error) {
	if wanted != "proxies" {
		n, err := links.NewNamespaces(cores + nodes)
		if err == nil {
			j.say("network: %s", n.Kind())
			return n, nil
		}
		if wanted == "namespaces" || !errors.Is(err, links.ErrNotHere) {
			return nil, err
		}
		j.say("network: %v", err)
	}
	p, err := links.NewProxies(cores + nodes)
	if err == nil {
		j.say("network: %s", p.Kind())
	}
	return p, err
}

func (w *world) clockFile(server int) string {
	return filepath.Join(w.dir, fmt.Sprintf("clock%d", server))
}

// start starts a server that is down.
func (w *world) start(server int) error {
	s := w.servers[server]
	if err := s.Start(); err != nil {
		return err
	}
	w.network.Started(links.Host(server), s.Process().PID())
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.down, server)
	return nil
}

func (w *world) startAll(list []int) error {
	var failures []error
	for _, i := range list {
		failures = append(failures, w.start(i))
	}
	return errors.Join(failures...)
}

// kill ends servers with kill -9, as nearly at the same time as possible, and returns when the
// processes are gone.
func (w *world) kill(list []int) error {
	w.mu.Lock()
	for _, i := range list {
		w.mu.down[i] = true
	}
	w.mu.Unlock()
	var failures []error
	var killed []*process.Process
	for _, i := range list {
		p := w.servers[i].Process()
		failures = append(failures, p.Signal(syscall.SIGKILL))
		killed = append(killed, p)
	}
	for _, p := range killed {
		<-p.Done()
	}
	return errors.Join(failures...)
}

// running lists the servers that no fault has ended.
func (w *world) running() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []int
	for i := range w.servers {
		if !w.mu.down[i] {
			list = append(list, i)
		}
	}
	return list
}

// ready returns nil if every server reports that it is ready.
func (w *world) ready(ctx context.Context) error {
	for _, s := range w.servers {
		if err := s.Ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// setClock sets an offset for a server's clock. The server notices within 20 ms.
func (w *world) setClock(server int, offset time.Duration) error {
	// The file is renamed into place, because an empty file would mean no offset.
	file := w.clockFile(server)
	if err := os.WriteFile(file+".new", []byte(offset.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// close ends the servers and removes their network and disks.
func (w *world) close() error {
	var failures []error
	for _, d := range w.disks {
		// A process that waits for its disk cannot be killed. An error is ignored, because most disks are
		// not frozen.
		_ = d.Thaw()
	}
	if w.cluster != nil {
		failures = append(failures, w.cluster.Close())
	}
	failures = append(failures, fleet.UnmountBelow(w.dir))
	if w.network != nil {
		failures = append(failures, w.network.Close())
	}
	return errors.Join(failures...)
}

// diskMegabytes is the size of a server's disk. The machine's disk space is used only when data is
// written.
const diskMegabytes = 768

// minFree is the free space that servers must keep on their disks.
const minFree = "32MiB"

// mountDisks mounts a disk for each of the names below dir. The error fleet.ErrNoMount means that
// this machine, or this user, cannot mount disks.
func mountDisks(dir string, names []string) ([]*fleet.Disk, error) {
	var disks []*fleet.Disk
	for _, name := range names {
		d, err := fleet.MountDisk(dir, name, diskMegabytes)
		if err != nil {
			return nil, errors.Join(err, fleet.UnmountBelow(dir))
		}
		disks = append(disks, d)
	}
	return disks, nil
}

// have returns the needs of faults that these disks meet.
func have(disks []*fleet.Disk) need {
	switch {
	case len(disks) == 0:
		return 0
	case !disks[0].Freezes():
		return needDisk
	default:
		return needDisk | needFreeze
	}
}
