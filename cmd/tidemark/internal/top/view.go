package top

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// recent is the length of the history from which latencies are computed. One request in 64 is
// timed.
const recent = 30 * time.Second

// View has the data of one moment.
type View struct {
	At time.Time
	// Nodes are the nodes that are not decommissioned. Histories, Machines and Slow may lack nodes.
	// Slow and Machines are empty for users who may not see them.
	Nodes     []admin.NodeInfo
	Histories []admin.LoadHistory
	// Machines are the examinations of servers, by address.
	Machines map[string]admin.Examination
	Slow     []admin.SlowRequest
	// Keyspaces are the names of keyspaces, by partition.
	Keyspaces map[uint64]string
	// Problems is the number of problems of the cluster.
	Problems int
}

// Row describes the work of a node.
type Row struct {
	admin.NodeInfo
	// Known: the node has reported its work. Reads and Writes are per second.
	Known         bool
	Reads, Writes float64
	// Half of the reads take at most ReadHalf, and 99 percent at most ReadMost. They are 0 if no read
	// was timed recently. WriteHalf and WriteMost are the same for writes.
	ReadHalf, ReadMost, WriteHalf, WriteMost time.Duration
	// Examined: the server has reported how much processor time, in processors, and memory, in bytes,
	// it uses.
	Examined   bool
	Processors float64
	Memory     uint64
}

// Rows returns the work of the nodes, in the order of their ids.
func (v *View) Rows() []Row {
	of := map[uint64]*admin.LoadHistory{}
	for i := range v.Histories {
		of[v.Histories[i].Node] = &v.Histories[i]
	}
	var all []Row
	for _, info := range v.Nodes {
		n := Row{NodeInfo: info}
		if x, ok := v.Machines[info.Address]; ok {
			n.Examined, n.Processors, n.Memory = true, x.Processor.Used, x.Memory.Used
		}
		if h := of[info.ID]; h != nil && len(h.Points) > 0 && info.Alive {
			n.Known = true
			n.rates(h.Points)
		}
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b Row) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// rates computes the rates of the last point that was measured for a while, and the latencies of
// the last half minute.
func (n *Row) rates(points []admin.LoadPoint) {
	last := points[len(points)-1]
	if last.Measured < time.Second && len(points) > 1 {
		last = points[len(points)-2]
	}
	if seconds := last.Measured.Seconds(); seconds > 0 {
		n.Reads, n.Writes = float64(last.Reads)/seconds, float64(last.Writes)/seconds
	}
	var reads, writes []uint32
	for _, p := range points {
		if p.Begin.Add(recent).After(last.Begin) {
			reads, writes = sum(reads, p.ReadTimes), sum(writes, p.WriteTimes)
			writes = sum(writes, p.TransactionTimes)
		}
	}
	n.ReadHalf, n.ReadMost = quantile(reads, 50), quantile(reads, 99)
	n.WriteHalf, n.WriteMost = quantile(writes, 50), quantile(writes, 99)
}

// sum adds the elements of two histograms.
func sum(a, b []uint32) []uint32 {
	all := slices.Clone(a)
	for i, n := range b {
		if i == len(all) {
			all = append(all, 0)
		}
		all[i] += n
	}
	return all
}

// quantile returns a duration within which the given percentage of the counted requests ended. It
// returns 0 if no request was counted.
func quantile(counts []uint32, percent uint64) time.Duration {
	var total, passed uint64
	for _, n := range counts {
		total += uint64(n)
	}
	for place, n := range counts {
		if passed += uint64(n); n > 0 && 100*passed >= percent*total {
			return admin.TimeBound(place)
		}
	}
	return 0
}

// Partition describes the work of a partition in a second.
type Partition struct {
	ID       uint64
	Keyspace string
	// Node leads the partition.
	Node                 uint64
	Reads, Writes, Bytes float64
}

// hottestShown is the maximum number of partitions that are shown.
const hottestShown = 8

// Hottest returns the partitions with the most requests in the last half minute, at the nodes that
// are alive.
func (v *View) Hottest() (all []Partition) {
	alive := map[uint64]bool{}
	for _, n := range v.Nodes {
		alive[n.ID] = n.Alive
	}
	for i := range v.Histories {
		h := &v.Histories[i]
		if len(h.Slots) == 0 || !alive[h.Node] {
			continue
		}
		slot := &h.Slots[len(h.Slots)-1]
		if slot.Measured < time.Second && len(h.Slots) > 1 {
			slot = &h.Slots[len(h.Slots)-2]
		}
		seconds := slot.Measured.Seconds()
		if seconds <= 0 {
			continue
		}
		for j, id := range slot.Partitions {
			all = append(all, Partition{ID: id, Keyspace: v.Keyspaces[id], Node: h.Node,
				Reads: float64(slot.Reads[j]) / seconds, Writes: float64(slot.Writes[j]) / seconds,
				Bytes: float64(slot.Bytes[j]) / seconds})
		}
	}
	slices.SortStableFunc(all, func(a, b Partition) int {
		return cmp.Or(cmp.Compare(b.Reads+b.Writes, a.Reads+a.Writes), cmp.Compare(a.ID, b.ID))
	})
	return all[:min(len(all), hottestShown)]
}
