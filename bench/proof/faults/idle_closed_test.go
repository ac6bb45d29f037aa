package faults

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/kv"
)

var (
	idlePartitions = flag.Int("faults.idle-partitions", 100_000,
		"how many partitions TestIdleClosed has, in seven keyspaces")
	idleMeasure = flag.Duration("faults.idle-measure", time.Minute,
		"for how long it measures processor time")
	idleRest = flag.Duration("faults.idle-rest", time.Minute,
		"for how long all groups have slept before it measures")
	idleSample = flag.Int("faults.idle-sample", 500, "how many partitions it reads on every node")
	idleWait   = flag.Duration("faults.idle-wait", 15*time.Minute,
		"for how long it waits for all groups to sleep")
	idleWithout = flag.String("faults.idle-without", "",
		"a program that closes no timestamps (default: it is built)")
)

const (
	idleKeyspaces = 7
	idleMemory    = 8 << 30 // bytes of all processes together
	idleBeyond    = 0.03    // the processor time for closing timestamps, as a part of a processor
	// idleLag is how far the closed timestamp of a replica may be behind the clock. A second of it
	// is the closed lag.
	idleLag = 2500 * time.Millisecond
)

// TestIdleClosed has many idle partitions on three servers. The partitions sleep, their timestamps
// are closed on all replicas nevertheless, and the cost of that is very small. The cost is the
// difference to the same servers, with the same partitions, that run a program which closes no
// timestamps: the same source with the lag of a replica that closes none (replica.SetClosedLag).
func TestIdleClosed(t *testing.T) {
	e := newEnvironment(t, 40*time.Minute+3**idleWait, fleet.Layout{Nodes: 3,
		Configure: func(i int, s *fleet.Server) {
			s.Roles, s.Flags = "core,node", []string{"--locality", "region=here,zone=" + idleZone(i)}
		}})
	shareCore(e.cluster)
	program := e.cluster.Nodes[0].Binary
	without := e.withoutClosing()
	ctx, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	e.must(e.cluster.Start(ctx), "start the cluster")
	empty := e.residentBytes()
	client, err := kv.Open(ctx, e.cluster.Endpoints(), kv.RequestTimeout(*idleWait))
	e.must(err, "open a client")
	defer client.Close()
	began := time.Now()
	for i := range idleKeyspaces {
		n := *idlePartitions*(i+1)/idleKeyspaces - *idlePartitions*i/idleKeyspaces
		_, err := client.CreateKeyspace(e.ctx, idleName(i), kv.Hash(n))
		e.must(err, "create keyspace %s of %d partitions", idleName(i), n)
		e.Logf("keyspace %s of %d partitions is there after %v", idleName(i), n,
			time.Since(began).Round(time.Second))
	}
	e.result("%d partitions in %d keyspaces created in %v", *idlePartitions, idleKeyspaces,
		time.Since(began).Round(time.Second))
	e.Logf("all sleep, and are closed, after another %v", e.allSleep(true).Round(time.Second))
	created := e.idleCost("created, closing")
	e.closedEverywhere()

	e.restartAll(without)
	e.Logf("without closing, all sleep after %v", e.allSleep(false).Round(time.Second))
	off := e.idleCost("restarted, closing none")
	if n := e.closingGroups(); n != 0 {
		e.Errorf("timestamps are closed for %.0f groups by a program that closes none", n)
	}
	e.restartAll(program)
	e.result("after a restart of all servers all sleep, and are closed again, after %v",
		e.allSleep(true).Round(time.Second))
	on := e.idleCost("restarted, closing")
	e.closedEverywhere()

	replicas := int64(3 * *idlePartitions)
	most := max(created.bytes, on.bytes)
	e.result("memory: at most %.2f GiB of three processes together, of which %.2f GiB without "+
		"partitions: %.1f KiB for each of %d replicas", float64(most)/(1<<30), float64(empty)/(1<<30),
		float64(most-empty)/1024/float64(replicas), replicas)
	beyond := on.processors - off.processors
	e.result("closing timestamps costs %.2f %% of a processor: %.2f %% with, %.2f %% without, both "+
		"after a restart; %.2f %% before", 100*beyond, 100*on.processors, 100*off.processors,
		100*created.processors)
	if most > idleMemory {
		e.Errorf("the processes have %d MiB, and should have at most %d",
			most>>20, int64(idleMemory)>>20)
	}
	if beyond > idleBeyond {
		e.Errorf("closing timestamps costs %.2f %% of a processor, and should cost at most %.0f %%",
			100*beyond, 100*idleBeyond)
	}
}

func idleZone(node int) string     { return fmt.Sprintf("z%d", node+1) }
func idleName(keyspace int) string { return fmt.Sprintf("idle%d", keyspace+1) }

// idleCost is the resource usage of idle servers.
type idleCost struct {
	processors float64
	bytes      int64
}

// idleCost measures the resource usage.
func (e *environment) idleCost(state string) (c idleCost) {
	e.Helper()
	began, before := time.Now(), e.processorTime()
	e.pass(*idleMeasure)
	c.processors = (e.processorTime() - before).Seconds() / time.Since(began).Seconds()
	c.bytes = e.residentBytes()
	e.result("%s: %.2f %% of a processor for all servers together over %v, %.2f GiB resident", state,
		100*c.processors, time.Since(began).Round(time.Second), float64(c.bytes)/(1<<30))
	return c
}

// allSleep waits for this state: no group is awake, all replicas exist, and, if closing is set,
// timestamps are closed for all of them. The state must then last as long as the servers rest.
// allSleep returns the time until the state was reached.
func (e *environment) allSleep(closing bool) (took time.Duration) {
	e.Helper()
	began := time.Now()
	var since time.Time // zero: the state has not been reached
	seen := "nothing was seen"
	ctx, cancel := context.WithTimeout(e.ctx, *idleWait+*idleRest)
	defer cancel()
	// A look at all replicas is work for the servers, so it must not come too often.
	ticker := time.NewTicker(max(time.Second, *idleRest/10))
	defer ticker.Stop()
	for {
		var sums [3]float64
		var failed error
		for _, s := range e.cluster.Nodes {
			for i, name := range [...]string{"tidemark_node_replicas", "tidemark_host_awake_groups",
				"tidemark_node_quiesced_closed_ts"} {
				n, err := metricSum(ctx, s, name, `part="node"`) // data nodes, without the core's group
				failed = errors.Join(failed, err)
				sums[i] += n
			}
		}
		if ctx.Err() == nil {
			seen = fmt.Sprintf("%.0f of %d replicas, %.0f awake, closed for %.0f of %d groups: %v",
				sums[0], 3**idlePartitions, sums[1], sums[2], *idlePartitions, failed)
		}
		switch {
		case failed != nil || sums[0] != float64(3**idlePartitions) || sums[1] > 0 ||
			closing && sums[2] != float64(*idlePartitions):
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		case time.Since(since) >= *idleRest:
			return since.Sub(began)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			e.Fatalf("not all groups sleep: %s", seen)
		}
	}
}

// closingGroups returns the number of sleeping groups whose timestamps are closed.
func (e *environment) closingGroups() (sum float64) {
	e.Helper()
	for _, s := range e.cluster.Nodes {
		n, err := metricSum(e.ctx, s, "tidemark_node_quiesced_closed_ts", "")
		e.must(err, "metrics of %s", s.Name)
		sum += n
	}
	return sum
}

// closedEverywhere checks the closed timestamps that servers report for all replicas. It also reads
// a sample of partitions on every node, twice. The timestamps must be close behind the clock, and
// must move on.
func (e *environment) closedEverywhere() {
	e.Helper()
	worst := 0.0
	for _, s := range e.cluster.Nodes {
		samples, err := s.Metrics(e.ctx)
		e.must(err, "metrics of %s", s.Name)
		leaders := 0
		for _, sample := range samples {
			if sample.Name == "tidemark_node_closed_ts_lag_seconds" {
				leaders++
				worst = max(worst, sample.Value)
			}
		}
		if leaders == 0 {
			e.Errorf("%s does not say how far its replicas are closed", s.Name)
		}
	}
	e.result("closed lag of all replicas: at most %.0f ms beyond that of their keyspaces", worst*1000)
	if limit := (idleLag - time.Second).Seconds(); worst > limit {
		e.Errorf("a replica is closed %.1f s behind what its keyspace wants", worst)
	}
	for i, s := range e.cluster.Nodes {
		e.sampleOf(i, s)
	}
}

// sampleOf reads the sample on one server.
func (e *environment) sampleOf(i int, s *fleet.Server) {
	e.Helper()
	client, err := kv.Open(e.ctx, e.cluster.Endpoints(), kv.Locality("here", idleZone(i)))
	e.must(err, "open a client near %s", s.Name)
	defer client.Close()
	servers, err := e.admin.NodeOf(e.ctx)
	e.must(err, "nodes")
	random := rand.New(rand.NewPCG(uint64(i), 100))
	type place struct {
		keyspace *kv.Keyspace
		key      []byte
		at       kv.Timestamp
	}
	sample := make([]place, *idleSample)
	for j := range sample {
		sample[j] = place{keyspace: client.Keyspace(idleName(j % idleKeyspaces)),
			key: fmt.Appendf(nil, "%016x", random.Uint64())}
	}
	var youngest, oldest time.Duration
	elsewhere, stood := 0, 0
	for round := range 2 {
		for j := range sample {
			p, info := &sample[j], kv.ReadInfo{}
			_, err := p.keyspace.Get(e.ctx, p.key, kv.AnyStaleness(), kv.ReadAt(&info))
			if !errors.Is(err, kv.ErrNotFound) {
				e.Fatalf("a read of an idle partition of %s on %s: %v", p.keyspace.Name(), s.Name, err)
			}
			age := time.Duration(time.Now().UnixNano() - info.At.Wall)
			if round == 0 && j == 0 {
				youngest = age
			}
			youngest, oldest = min(youngest, age), max(oldest, age)
			if servers[info.Node] != s {
				elsewhere++
			}
			if info.At.LessEq(p.at) {
				stood++
			}
			p.at = info.At
		}
		if round == 0 {
			e.pass(2 * time.Second)
		}
	}
	e.result("%s: %d partitions read twice with AnyStaleness: what was read was %v to %v old; %d "+
		"answers came from another server, %d were not later than those before", s.Name, *idleSample,
		youngest.Round(time.Millisecond), oldest.Round(time.Millisecond), elsewhere, stood)
	if oldest > idleLag || elsewhere > 0 || stood > 0 {
		e.Errorf("closed timestamps do not advance on all replicas of %s", s.Name)
	}
}

// restartAll kills all servers, and starts them again with a program.
func (e *environment) restartAll(program string) {
	e.Helper()
	e.must(e.cluster.KillAll(), "end all servers")
	for _, s := range e.cluster.All() {
		s.Binary = program
		e.must(s.Start(), "start %s", s.Name)
	}
	ctx, cancel := context.WithTimeout(e.ctx, *idleWait)
	defer cancel()
	e.must(e.cluster.WaitReady(ctx), "restart")
}

// withoutClosing builds a program that closes no timestamps.
func (e *environment) withoutClosing() (program string) {
	e.Helper()
	if *idleWithout != "" {
		program, err := filepath.Abs(*idleWithout)
		e.must(err, "find the program that closes no timestamps")
		return program
	}
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	e.must(err, "find the module")
	changed := filepath.Join(root, "range", "replica", "closing.go")
	text, err := os.ReadFile(changed)
	e.must(err, "read what closes timestamps")
	const lag = "func (r *Replica) lag() time.Duration {\n"
	before, after, found := strings.Cut(string(text), lag)
	if !found {
		e.Fatalf("%s has no %q any more: this test has to know where closing is switched off",
			changed, lag)
	}
	copied := filepath.Join(e.dir, "closing.go")
	e.must(os.WriteFile(copied, []byte(before+lag+"\treturn -1\n"+after), 0o644), "write a copy")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{changed: copied}})
	e.must(err, "make an overlay")
	path := filepath.Join(e.dir, "overlay.json")
	e.must(os.WriteFile(path, overlay, 0o644), "write an overlay")
	program = filepath.Join(e.dir, "tidemark-closing-none")
	build := exec.CommandContext(e.ctx, "go", "build", "-trimpath", "-overlay", path, "-o", program,
		"./cmd/tidemark")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		e.Fatalf("build a program that closes no timestamps: %v\n%s", err, out)
	}
	return program
}
