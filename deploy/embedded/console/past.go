package console

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// past has the work of nodes in the last hour, as far as a viewer has asked. Nodes keep this
// history. The console has a copy while pages are open, and asks only for the newest part again.
type past struct {
	asked memo[struct{}]

	mu    sync.Mutex
	nodes map[uint64]*nodePast
	// silent are the nodes that did not answer the last time.
	silent []uint64
}

type nodePast struct {
	points []admin.LoadPoint
	slots  []admin.LoadSlot
}

// newest returns the beginning of the last point. It is zero if there is none.
func (n *nodePast) newest() time.Time {
	if len(n.points) == 0 {
		return time.Time{}
	}
	return n.points[len(n.points)-1].Begin
}

const (
	// pastKept is the length of the history that is kept. pointStep and slotStep are the steps into
	// which nodes divide it.
	pastKept  = time.Hour
	pointStep = 10 * time.Second
	slotStep  = 30 * time.Second
	// pastAge is the interval at which nodes are asked.
	pastAge = 3 * time.Second
	// maxPast limits the number of partitions in all slots of all nodes together. Each takes 32 bytes.
	maxPast = 1 << 20
)

func (p *past) forget() {
	p.asked.forget()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nodes, p.silent = nil, nil
}

// update asks the nodes for new data.
func (p *past) update(ctx context.Context, v *viewer, cluster Cluster) error {
	nodes, err := v.known.nodes.get(ctx, nodesAge, cluster.Nodes)
	if err != nil {
		return err
	}
	_, err = p.asked.get(ctx, pastAge, func(ctx context.Context) (struct{}, error) {
		alive := make([]admin.NodeInfo, 0, len(nodes))
		for _, n := range nodes {
			if n.Alive {
				alive = append(alive, n)
			}
		}
		p.merge(cluster.LoadHistories(ctx, alive, p.since))
		return struct{}{}, nil
	})
	return err
}

// since returns the end of the known history of a node.
func (p *past) since(node uint64) admin.LoadHistorySince {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := admin.LoadHistorySince{Partitions: true}
	if n := p.nodes[node]; n != nil {
		if len(n.points) > 0 {
			q.Points = n.points[len(n.points)-1].Begin
		}
		if len(n.slots) > 0 {
			q.Slots = n.slots[len(n.slots)-1].Begin
		}
	}
	return q
}

// merge adds the answers of nodes.
func (p *past) merge(all []admin.LoadHistory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nodes == nil {
		p.nodes = map[uint64]*nodePast{}
	}
	p.silent = nil
	most := max(maxPast/int(pastKept/slotStep)/max(len(all), 1), 16)
	for i := range all {
		h := &all[i]
		if h.Err != nil {
			p.silent = append(p.silent, h.Node)
		}
		n := p.nodes[h.Node]
		if n == nil {
			n = &nodePast{}
			p.nodes[h.Node] = n
		}
		for j := range h.Slots {
			keepBusiest(&h.Slots[j], most)
		}
		n.points = joined(n.points, h.Points, func(x admin.LoadPoint) time.Time { return x.Begin })
		n.slots = joined(n.slots, h.Slots, func(x admin.LoadSlot) time.Time { return x.Begin })
	}
	// The history of a node that is gone is dropped when it is older than the history that is shown.
	newest := time.Time{}
	for _, n := range p.nodes {
		if at := n.newest(); at.After(newest) {
			newest = at
		}
	}
	for id, n := range p.nodes {
		if newest.Sub(n.newest()) > pastKept {
			delete(p.nodes, id)
		}
	}
}

// joined returns a list with its newest part replaced, without elements that are older than an
// hour.
func joined[T any](old, newer []T, begin func(T) time.Time) []T {
	if len(newer) == 0 {
		return old
	}
	first, newest := begin(newer[0]), begin(newer[len(newer)-1])
	// A node that has restarted answers with less, and a node whose clock was set back answers with
	// earlier times. Both replace the old elements.
	keep := slices.DeleteFunc(old, func(x T) bool {
		return !begin(x).Before(first) || newest.Sub(begin(x)) > pastKept
	})
	return append(keep, newer...)
}

// keepBusiest removes the partitions of a slot that have done the least work, beyond a number of
// most.
func keepBusiest(s *admin.LoadSlot, most int) {
	if len(s.Partitions) <= most {
		return
	}
	order := make([]int, len(s.Partitions))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Compare(s.Reads[b]+s.Writes[b], s.Reads[a]+s.Writes[a])
	})
	kept := admin.LoadSlot{Begin: s.Begin, Measured: s.Measured,
		LeftOut: s.LeftOut + len(order) - most}
	for _, i := range order[:most] {
		kept.Partitions = append(kept.Partitions, s.Partitions[i])
		kept.Reads = append(kept.Reads, s.Reads[i])
		kept.Writes = append(kept.Writes, s.Writes[i])
		kept.Bytes = append(kept.Bytes, s.Bytes[i])
	}
	*s = kept
}

// historyView is the feed "history": the cluster's load over the last hour. Each list has an
// element for each step.
type historyView struct {
	// Begin is the time of the first step, in Unix milliseconds.
	Begin  int64    `json:"begin"`
	Step   int64    `json:"step"`
	Reads  []uint64 `json:"reads"`
	Writes []uint64 `json:"writes"`
	Bytes  []uint64 `json:"bytes"`
	// The durations of requests at the servers, in microseconds. They are 0 if no request was timed.
	// Writes include the steps of transactions.
	ReadP50  []int64 `json:"readP50"`
	ReadP99  []int64 `json:"readP99"`
	WriteP50 []int64 `json:"writeP50"`
	WriteP99 []int64 `json:"writeP99"`
	// Silent are the nodes that did not answer.
	Silent []uint64 `json:"silent,omitempty"`
}

// steps returns the number of steps in a period.
func steps(begin, end time.Time, step time.Duration) int { return int(end.Sub(begin)/step) + 1 }

// history adds up the work of the nodes.
func (c *Console) history(ctx context.Context, v *viewer, cluster Cluster, _ url.Values) (any,
	error) {
	if err := v.past.update(ctx, v, cluster); err != nil {
		return nil, err
	}
	return v.past.sum(), nil
}

// stretch is the period of a point or a slot.
type stretch struct {
	begin    time.Time
	measured time.Duration
}

func stretches[T any](list []T, of func(*T) stretch) []stretch {
	all := make([]stretch, 0, len(list))
	for i := range list {
		all = append(all, of(&list[i]))
	}
	return all
}

// complete returns the beginnings of the first and of the last step that can be shown. It returns
// false if there is none. Nodes measure at different times. So the newest step is shown when each
// node that has the step before has measured it. Otherwise the newest sum would always be too
// small.
func complete(nodes [][]stretch, step time.Duration) (first, last time.Time, ok bool) {
	for _, list := range nodes {
		for _, x := range list {
			if first.IsZero() || x.begin.Before(first) {
				first = x.begin
			}
			if x.begin.After(last) {
				last = x.begin
			}
		}
	}
	for _, list := range nodes {
		before, newest := false, false
		for _, x := range list[max(0, len(list)-2):] {
			before = before || x.begin.Equal(last.Add(-step))
			newest = newest || x.begin.Equal(last) && x.measured > 0
		}
		if before && !newest {
			last = last.Add(-step)
			break
		}
	}
	if last.Sub(first) > pastKept {
		first = last.Add(-pastKept)
	}
	return first, last, !first.IsZero() && !last.Before(first)
}

// sumOfStep is the work of all nodes together in a step.
type sumOfStep struct {
	reads, writes, bytes    float64
	readTimes, writingTimes []uint64
}

func (p *past) sum() *historyView {
	p.mu.Lock()
	defer p.mu.Unlock()
	view := &historyView{Step: pointStep.Milliseconds(), Silent: p.silent, Reads: []uint64{},
		Writes: []uint64{}, Bytes: []uint64{}, ReadP50: []int64{}, ReadP99: []int64{},
		WriteP50: []int64{}, WriteP99: []int64{}}
	var lists [][]stretch
	for _, n := range p.nodes {
		lists = append(lists, stretches(n.points, func(x *admin.LoadPoint) stretch {
			return stretch{x.Begin, x.Measured}
		}))
	}
	first, last, ok := complete(lists, pointStep)
	if !ok {
		return view
	}
	view.Begin = first.UnixMilli()
	sums := make([]sumOfStep, steps(first, last, pointStep))
	for _, n := range p.nodes {
		for i := range n.points {
			x := &n.points[i]
			if !x.Begin.Before(first) && !x.Begin.After(last) {
				sums[int(x.Begin.Sub(first)/pointStep)].add(x)
			}
		}
	}
	for i := range sums {
		s := &sums[i]
		view.Reads = append(view.Reads, uint64(s.reads+0.5))
		view.Writes = append(view.Writes, uint64(s.writes+0.5))
		view.Bytes = append(view.Bytes, uint64(s.bytes+0.5))
		view.ReadP50 = append(view.ReadP50, quantile(s.readTimes, 0.5))
		view.ReadP99 = append(view.ReadP99, quantile(s.readTimes, 0.99))
		view.WriteP50 = append(view.WriteP50, quantile(s.writingTimes, 0.5))
		view.WriteP99 = append(view.WriteP99, quantile(s.writingTimes, 0.99))
	}
	return view
}

func (s *sumOfStep) add(p *admin.LoadPoint) {
	if seconds := p.Measured.Seconds(); seconds > 0 {
		s.reads += float64(p.Reads) / seconds
		s.writes += float64(p.Writes) / seconds
		s.bytes += float64(p.ReadBytes+p.WrittenBytes) / seconds
	}
	s.readTimes = plus(s.readTimes, p.ReadTimes)
	s.writingTimes = plus(plus(s.writingTimes, p.WriteTimes), p.TransactionTimes)
}

func plus(sum []uint64, counts []uint32) []uint64 {
	const most = 64
	for i, n := range counts[:min(len(counts), most)] {
		if i == len(sum) {
			sum = append(sum, 0)
		}
		sum[i] += uint64(n)
	}
	return sum
}

// quantile estimates a quantile of durations, in microseconds. It returns 0 if there are no
// durations.
func quantile(counts []uint64, q float64) int64 {
	total := uint64(0)
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return 0
	}
	rank, below := q*float64(total), 0.0
	for i, n := range counts {
		if below+float64(n) < rank || n == 0 {
			below += float64(n)
			continue
		}
		low, high := 0.0, float64(admin.TimeBound(i).Microseconds())
		if i > 0 {
			low = float64(admin.TimeBound(i - 1).Microseconds())
		}
		return int64(low + (high-low)*(rank-below)/float64(n))
	}
	return admin.TimeBound(len(counts) - 1).Microseconds()
}
