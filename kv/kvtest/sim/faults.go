package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// kind is a kind of fault: an entry of the table. begin makes it happen, draws what it needs from random, and returns what
// it did, and how to end it (nil if there is nothing to end). The schedule calls begin and end one at a time.
type kind struct {
	name string
	// weight is how often it is drawn, beside the others'.
	weight int
	// longest is the longest time between begin and end.
	longest time.Duration
	begin   func(w *World, random *rand.Rand) (did string, end func() string)
}

// kinds is all there is. A server that is down already, or that has another fault, may get one more: real ones do not queue.
var kinds = []kind{
	{"crash", 20, 12 * time.Second, crash},
	{"crash of all servers", 2, 3 * time.Second, crashAll},
	{"stop", 6, 10 * time.Second, stop},
	{"crash of the core's leader", 4, 10 * time.Second, crashCoreLeader},
	{"isolation", 14, 20 * time.Second, isolate},
	{"cut", 14, 20 * time.Second, cut},
	{"reset", 8, 0, reset},
	{"slow link", 8, 15 * time.Second, slow},
	{"leader transfer", 16, 0, transfer},
	{"isolation of a leader", 10, 12 * time.Second, isolateLeader},
	{"clock", 12, 0, clock},
	{"slow disk", 14, 15 * time.Second, slowDisk},
}

// maxClock is how far clocks are set off from the true time; two of them stay within the configured bound of 250 ms.
const maxClock = 120 * time.Millisecond

// pickServer draws a server.
func pickServer(w *World, random *rand.Rand) int { return random.IntN(w.Cluster.Servers()) }

// pickMode draws what a cut does to connections.
func pickMode(random *rand.Rand) memnet.Mode {
	if random.IntN(2) == 0 {
		return memnet.Break
	}
	return memnet.Stall
}

func modeName(m memnet.Mode) string {
	if m == memnet.Break {
		return "broken"
	}
	return "silent"
}

// run starts a server that is down.
func run(w *World, server int) {
	if w.Cluster.Process(server) == nil {
		if err := w.Cluster.Run(server); err != nil {
			w.Violation("server %d does not start: %v", server, err)
		}
	}
}

func kill(w *World, server int, random *rand.Rand) (percent int) {
	percent = []int{0, 50, 100}[random.IntN(3)]
	checkHealthy(w, server)
	w.Cluster.Kill(server, percent)
	return percent
}

func crash(w *World, random *rand.Rand) (string, func() string) {
	return crashOf(w, pickServer(w, random), random)
}

func crashOf(w *World, server int, random *rand.Rand) (string, func() string) {
	percent := kill(w, server, random)
	return fmt.Sprintf("server %d crashed; %d %% of what was not synced survives", server, percent), func() string {
		run(w, server)
		return fmt.Sprintf("server %d started", server)
	}
}

func crashCoreLeader(w *World, random *rand.Rand) (string, func() string) {
	for i := range w.Cluster.Servers() {
		if p := w.Cluster.Process(i); p != nil && p.LeadsCore() {
			return crashOf(w, i, random)
		}
	}
	return "the core has no leader that could crash", nil
}

func crashAll(w *World, random *rand.Rand) (string, func() string) {
	for i := range w.Cluster.Servers() {
		kill(w, i, random)
	}
	return "all servers crashed", func() string {
		for i := range w.Cluster.Servers() {
			run(w, i)
		}
		return "all servers started"
	}
}

func stop(w *World, random *rand.Rand) (string, func() string) {
	server := pickServer(w, random)
	checkHealthy(w, server)
	if err := w.Cluster.Stop(server); err != nil {
		w.Violation("stopping server %d: %v", server, err)
	}
	return fmt.Sprintf("server %d stopped", server), func() string {
		run(w, server)
		return fmt.Sprintf("server %d started", server)
	}
}

func isolate(w *World, random *rand.Rand) (string, func() string) {
	return isolateServer(w, pickServer(w, random), pickMode(random))
}

func isolateServer(w *World, server int, mode memnet.Mode) (string, func() string) {
	w.Cluster.Isolate(server, mode)
	return fmt.Sprintf("server %d isolated, links %s", server, modeName(mode)), func() string {
		w.Cluster.Rejoin(server)
		return fmt.Sprintf("server %d rejoined", server)
	}
}

// clients is about how many clients a run has; a fault of one that is not there does nothing.
const clients = 40

// isolateLeader cuts a leader off from the other servers and from half of the clients. The other half goes on reaching it,
// and must get nothing stale while the first half finds its successor.
func isolateLeader(w *World, random *rand.Rand) (string, func() string) {
	var leaders []int
	for i := range w.Cluster.Servers() {
		if p := w.Cluster.Process(i); p != nil {
			for _, r := range p.Replicas() {
				if r.Leads {
					leaders = append(leaders, i)
					break
				}
			}
		}
	}
	if len(leaders) == 0 {
		return "nobody leads", nil
	}
	server, mode := leaders[random.IntN(len(leaders))], pickMode(random)
	for other := range w.Cluster.Servers() {
		if other != server {
			w.Cluster.Cut(server, other, mode)
			w.Cluster.Cut(other, server, mode)
		}
	}
	var apart []string
	for i := range clients {
		if random.IntN(2) == 0 {
			apart = append(apart, fmt.Sprintf("client-%d", i+1))
			w.Cluster.Network().CutBoth(w.Cluster.Host(server), apart[len(apart)-1], mode)
		}
	}
	return fmt.Sprintf("server %d, a leader, cut off from all servers and from half of the clients, links %s", server, modeName(mode)), func() string {
		for _, client := range apart {
			w.Cluster.Network().Heal(w.Cluster.Host(server), client)
		}
		for other := range w.Cluster.Servers() {
			if other != server {
				w.Cluster.Heal(server, other)
			}
		}
		return fmt.Sprintf("server %d reaches the others", server)
	}
}

// cut cuts one direction between two servers, or both, or between a client and a server.
func cut(w *World, random *rand.Rand) (string, func() string) {
	from, to := w.Cluster.Host(pickServer(w, random)), w.Cluster.Host(pickServer(w, random))
	if random.IntN(4) == 0 {
		from = fmt.Sprintf("client-%d", 1+random.IntN(clients))
	}
	mode, ways := pickMode(random), "one way"
	n := w.Cluster.Network()
	n.Cut(from, to, mode)
	if random.IntN(2) == 0 {
		ways = "both ways"
		n.Cut(to, from, mode)
	}
	return fmt.Sprintf("link from %s to %s %s, %s", from, to, modeName(mode), ways), func() string {
		n.Heal(from, to)
		return fmt.Sprintf("link from %s to %s healed", from, to)
	}
}

func reset(w *World, random *rand.Rand) (string, func() string) {
	a, b := w.Cluster.Host(pickServer(w, random)), w.Cluster.Host(pickServer(w, random))
	if random.IntN(3) == 0 {
		a = fmt.Sprintf("client-%d", 1+random.IntN(clients))
	}
	w.Cluster.Network().Drop(a, b)
	return fmt.Sprintf("connections between %s and %s reset", a, b), nil
}

func slow(w *World, random *rand.Rand) (string, func() string) {
	from, to := w.Cluster.Host(pickServer(w, random)), w.Cluster.Host(pickServer(w, random))
	if from == to {
		return "a server's link to itself stays fast", nil
	}
	d := time.Duration(1+random.IntN(400)) * time.Millisecond
	n := w.Cluster.Network()
	n.SetLatency(from, to, d)
	return fmt.Sprintf("link from %s to %s takes %v", from, to, d), func() string {
		n.SetLatency(from, to, latency)
		return fmt.Sprintf("link from %s to %s is fast again", from, to)
	}
}

func transfer(w *World, random *rand.Rand) (string, func() string) {
	did := "no leadership to transfer"
	server := pickServer(w, random)
	p := w.Cluster.Process(server)
	if p == nil {
		return did, nil
	}
	share := 1 + random.IntN(3)
	for _, r := range p.Replicas() {
		if to := r.Peers[random.IntN(len(r.Peers))]; r.Leads && to != r.Replica && random.IntN(share) == 0 {
			p.TransferLeader(r.Partition, to)
			did = fmt.Sprintf("server %d hands over leaderships, the last of them of partition %d to replica %d", server, r.Partition, to)
		}
	}
	return did, nil
}

func clock(w *World, random *rand.Rand) (string, func() string) {
	server := pickServer(w, random)
	d := time.Duration(random.Int64N(int64(2*maxClock))) - maxClock
	w.Cluster.Clock(server).SetOffset(d)
	return fmt.Sprintf("the clock of server %d set %v off", server, d), nil
}

func slowDisk(w *World, random *rand.Rand) (string, func() string) {
	server, d := pickServer(w, random), time.Duration(1+random.IntN(100))*time.Millisecond
	w.Cluster.Disk(server).SetSyncDelay(d)
	return fmt.Sprintf("syncs of server %d take up to %v", server, d), func() string {
		w.Cluster.Disk(server).SetSyncDelay(syncDelay)
		return fmt.Sprintf("syncs of server %d are fast again", server)
	}
}
