package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/links"
)

const (
	// namedWithin is the time within which a slow server has a name everywhere.
	namedWithin = 30 * time.Second
	// wellWithin is the time within which nobody names a server any longer that is well again.
	wellWithin = time.Minute
	// The process of the slow server stands still for processorStill, and runs for processorRuns.
	processorStill, processorRuns = 200 * time.Millisecond, 30 * time.Millisecond
	// networkWay is the delay of each message from and to the slow server.
	networkWay = 15 * time.Millisecond
)

// slowness is a way in which a server is slow.
type slowness struct {
	name string
	// words are what doctor, status, and the console say about the cause.
	words string
	// begin makes the server slow, and returns what ends that.
	begin func(server int) (end func() error, err error)
}

// TestSlowServerIsNamed makes one of three servers slow in each way in turn, under load: its
// processor, its network, its disk. "tidemark doctor", "tidemark status", and the console of another
// server name the slow server and the cause within 30 s, and stop when the server is well again. No
// acknowledged write is lost.
func TestSlowServerIsNamed(t *testing.T) {
	if !*enabled {
		t.Skip("fault tests run with -faults (make faults)")
	}
	network, err := links.NewProxies(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the servers have ended
		if err := network.Close(); err != nil {
			t.Errorf("close the proxies: %v", err)
		}
	})
	disks := mountDisks(t, smallDisks(t))
	layout := threeServers()
	layout.Configure = func(i int, s *fleet.Server) {
		a := network.Address(links.Host(i))
		s.Roles, s.Listen, s.HTTP, s.Advertise = "core,node", a.Listen, a.HTTP, a.Advertise
	}
	if len(disks) > 0 {
		layout.NodeDir = func(i int) string { return disks[i].Dir + "/data" }
	}
	e := newEnvironment(t, 10*time.Minute, layout)
	shareCore(e.cluster)
	for i, s := range e.cluster.Nodes {
		e.must(s.Start(), "start %s", s.Name)
		network.Started(links.Host(i), s.Process().PID())
	}
	ready, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	e.must(e.cluster.WaitReady(ready), "wait for the servers")
	e.must(e.admin.CreateKeyspace(ready, keyspace, hash, 3), "create keyspace %s", keyspace)
	load := steadyLoad(e.open(keyspace))
	load.Start(e.ctx)
	defer load.Stop()
	e.wait(wellWithin, "all is well at first", func(ctx context.Context) error {
		return e.nobodySlow(ctx)
	})

	ways := []slowness{
		{"processor", "processor is slow", func(i int) (func() error, error) {
			return stutterProcess(e.cluster.Nodes[i])
		}},
		{"network", "network is slow", func(i int) (func() error, error) {
			slow, well := map[links.Link]links.Shape{}, map[links.Link]links.Shape{}
			for other := range e.cluster.Nodes {
				if other != i {
					for _, l := range []links.Link{{From: links.Host(i), To: links.Host(other)},
						{From: links.Host(other), To: links.Host(i)}} {
						slow[l], well[l] = links.Shape{Delay: networkWay}, links.Shape{}
					}
				}
			}
			return func() error { return network.Set(well) }, network.Set(slow)
		}},
	}
	if len(disks) > 0 {
		ways = append(ways, slowness{"disk", "disk is slow", func(i int) (func() error, error) {
			done, ended := make(chan struct{}), make(chan error, 1)
			stutter := fleet.Stutter{Still: 100 * time.Millisecond, Works: 10 * time.Millisecond}
			go func() { ended <- disks[i].StallFor(stutter, namedWithin+wellWithin, done) }()
			return func() error { close(done); return <-ended }, nil
		}})
	} else {
		e.result("no disk can be stalled here: the slow disk is left out")
	}
	for i, way := range ways {
		e.oneSlow(way, i%len(e.cluster.Nodes))
	}
	e.check(load)
}

// mountDisks mounts a disk for each of three servers; none where that is not possible.
func mountDisks(t *testing.T, where string) (disks []*fleet.Disk) {
	t.Helper()
	for i := range 3 {
		d, err := fleet.MountDisk(where, fmt.Sprintf("disk%d", i+1), diskMegabytes)
		if errors.Is(err, fleet.ErrNoMount) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Unmount(); err != nil {
				t.Error(err)
			}
		})
		if !d.Freezes() {
			return nil
		}
		disks = append(disks, d)
	}
	return disks
}

// oneSlow makes a server slow, and waits until everybody names the server and the cause. Then the
// server is well again, and oneSlow waits until nobody names a server.
func (e *environment) oneSlow(way slowness, server int) {
	e.Helper()
	slow, asked := e.cluster.Nodes[server], e.cluster.Nodes[(server+1)%len(e.cluster.Nodes)]
	begin := time.Now()
	end, err := way.begin(server)
	e.must(err, "make the %s of %s slow", way.name, slow.Name)
	var named []string
	for _, see := range e.views() {
		e.wait(namedWithin-time.Since(begin), fmt.Sprintf("%s names the slow %s of %s", see.name,
			way.name, slow.Name), func(ctx context.Context) error {
			text, err := see.ask(ctx, asked)
			if err != nil {
				return err
			}
			if !names(text, slow, way.words) {
				return fmt.Errorf("it says: %s", text)
			}
			return nil
		})
		named = append(named, fmt.Sprintf("%s after %.1f s", see.name, time.Since(begin).Seconds()))
	}
	e.must(end(), "end the slow %s of %s", way.name, slow.Name)
	begin = time.Now()
	e.wait(wellWithin, "nobody names a slow "+way.name, e.nobodySlow)
	e.result("the slow %s is named by %s; by nobody %.1f s after its end", way.name,
		strings.Join(named, ", "), time.Since(begin).Seconds())
}

// names reports whether a line of text has an address of the server and the words.
func names(text string, s *fleet.Server, words string) bool {
	for line := range strings.Lines(text) {
		if strings.Contains(line, words) &&
			(strings.Contains(line, s.Listen) || strings.Contains(line, s.Advertise)) {
			return true
		}
	}
	return false
}

// view is one of the places that name a slow server.
type view struct {
	name string
	ask  func(ctx context.Context, asked *fleet.Server) (string, error)
}

func (e *environment) views() []view {
	command := func(name string) func(context.Context, *fleet.Server) (string, error) {
		return func(ctx context.Context, asked *fleet.Server) (string, error) {
			run := exec.CommandContext(ctx, asked.Binary, name, "-o", "json", "--endpoints",
				strings.Join(e.cluster.Endpoints(), ","))
			out, err := run.Output()
			var exit *exec.ExitError
			if errors.As(err, &exit) && len(out) > 0 {
				err = nil // findings and problems have exit codes of their own
			}
			return strings.ReplaceAll(string(out), "{", "\n{"), err
		}
	}
	return []view{{"status", command("status")}, {"doctor", command("doctor")},
		{"the console", consoleOf}}
}

// consoleOf returns what the first page of the server's console shows.
func consoleOf(ctx context.Context, s *fleet.Server) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+s.HTTP+"/console/api/live?feed=cluster", nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return strings.ReplaceAll(data, "{", "\n{"), nil
		}
	}
	return "", fmt.Errorf("the console of %s: %s: %w", s.Name, answer.Status, lines.Err())
}

// nobodySlow returns an error while one of the views names a slow server.
func (e *environment) nobodySlow(ctx context.Context) error {
	for _, see := range e.views() {
		text, err := see.ask(ctx, e.cluster.Nodes[0])
		if err != nil {
			return err
		}
		if strings.Contains(text, " is slow") {
			return fmt.Errorf("%s says: %s", see.name, text)
		}
	}
	return nil
}

// stutterProcess lets a server's process stand still and run in turns, as a machine does whose
// processor has too much to do.
func stutterProcess(s *fleet.Server) (end func() error, err error) {
	p := s.Process()
	done := make(chan struct{})
	var running sync.WaitGroup
	var failure error
	running.Go(func() {
		for {
			if failure = p.Pause(); failure != nil {
				return
			}
			over := pauseFor(processorStill, done)
			if failure = p.Resume(); failure != nil || over || pauseFor(processorRuns, done) {
				return
			}
		}
	})
	return func() error {
		close(done)
		running.Wait()
		return failure
	}, nil
}

// pauseFor waits for d, and reports whether done ended the wait.
func pauseFor(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-done:
		return true
	}
}
