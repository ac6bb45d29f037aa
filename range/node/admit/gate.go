package admit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/admission/workqueue"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Server serves the requests that begin.
type Server interface {
	// Begin begins requests of one client, in their order, and returns what is left to do, nil if
	// nothing is.
	Begin(client uint64, requests []config.Pending) rpc.Work
	// Refuse answers a request that does not run.
	Refuse(q *kvpb.Request, e *kvpb.Error, reply func(*kvpb.Response))
	// KeyspaceOf returns the keyspace of a partition, 0 if the node does not know it.
	KeyspaceOf(partition uint64) uint64
}

// Config configures a Gate.
type Config struct {
	Node   keys.NodeID
	Server Server
	// Client, if not nil, returns the address from which a client is connected, and the name of its
	// user; "" if it has none.
	Client func(client uint64) (address, user string)
	// Queue configures the queue. Without Queue.Short no request waits.
	Queue workqueue.Config
	// Metrics are required.
	Metrics *Metrics
}

// The cost of a request as far as it is known when the request comes: what each request takes, and
// what its bytes take on the way to the disks of all replicas. The time of its evaluation is added
// when it is answered.
const (
	costOfRequest = 20 * time.Microsecond
	costOfByte    = 20 * time.Nanosecond
)

// mostTaken is how many requests are taken out of the queue at a time.
const mostTaken = 128

// Gate decides when requests begin. Safe for concurrent use.
type Gate struct {
	config Config
	// queue is nil if no request waits.
	queue *workqueue.Queue[waiting]
	// wake has one token while requests may begin.
	wake chan struct{}
	// running counts the works of requests that have waited.
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		// clients are the clients with requests in the queue.
		clients map[uint64]*client
	}
}

// client is a client with requests in the queue.
type client struct {
	user string
	// waiting is the number of its requests in the queue.
	waiting int
}

// waiting is a request in the queue.
type waiting struct {
	pending  config.Pending
	priority workqueue.Priority
}

// New makes a Gate. Run runs it.
func New(c Config) *Gate {
	g := &Gate{config: c, wake: make(chan struct{}, 1)}
	g.mu.clients = make(map[uint64]*client)
	if c.Queue.Short != nil {
		g.queue = workqueue.New[waiting](c.Queue)
		c.Metrics.of(g.queue)
	}
	return g
}

// Enter takes a message of a client. It returns the requests that begin now, for the caller to
// begin them with the reply that it returns as well. The others wait, or are refused. batch stays
// the caller's.
func (g *Gate) Enter(of uint64, batch []*kvpb.Request, reply func(*kvpb.Response),
	now time.Time) (rest []*kvpb.Request, counted func(*kvpb.Response)) {
	if g.queue == nil {
		return batch, reply
	}
	lasting, low := 0, 0
	for _, q := range batch {
		if command.Of(q).Lasting {
			lasting++
		}
		if priorityOf(q) == workqueue.Low {
			low++
		}
	}
	if lasting == 0 {
		if began, ok := g.queue.Enter(len(batch), low, now); ok {
			return batch, g.counted(began, reply)
		}
	}
	rest = make([]*kvpb.Request, 0, len(batch))
	for _, q := range batch {
		switch c := command.Of(q); {
		case c.Lasting:
			g.run(g.config.Server.Begin(of, []config.Pending{{Client: of, Request: q, Reply: reply,
				Arrived: now}}))
		case beginsAtOnce(c, q):
			rest = append(rest, q)
		default:
			g.wait(config.Pending{Client: of, Request: q, Reply: reply, Arrived: now}, now)
		}
	}
	g.awake()
	return rest, g.counted(g.queue.EnterAlways(len(rest)), reply)
}

// beginsAtOnce says that a request never waits: others wait for what it does, or it is a write of
// term 0, which every replica refuses at once and which tells a client where the leader is.
func beginsAtOnce(c *command.Command, q *kvpb.Request) bool {
	if c == command.Load {
		return false
	}
	return c.Foreground == nil || c.Dispatch == command.InQueue && q.Term == 0
}

// counted returns reply, after which a request no longer counts as being at work.
func (g *Gate) counted(began workqueue.Began, reply func(*kvpb.Response)) func(*kvpb.Response) {
	return func(r *kvpb.Response) {
		reply(r)
		if g.queue.Leave(began, 1) {
			g.awake()
		}
	}
}

// wait puts a request into the queue, or refuses it.
func (g *Gate) wait(p config.Pending, now time.Time) {
	w := waiting{pending: p, priority: priorityOf(p.Request)}
	tenant := workqueue.Tenant{User: g.joins(p.Client),
		Keyspace: g.config.Server.KeyspaceOf(partitionOf(p.Request))}
	cost := costOfRequest + time.Duration(p.Request.SizeVT())*costOfByte
	err := g.queue.Add(w, tenant, w.priority, cost, now)
	if err == nil {
		return
	}
	g.leaves(p.Client)
	e := &kvpb.Error{Code: kvpb.ErrorCode_NODE_UNHEALTHY,
		Message: fmt.Sprintf("node %s is closing", g.config.Node)}
	var full *workqueue.FullError
	if errors.As(err, &full) {
		g.config.Metrics.refused.Inc()
		e = &kvpb.Error{Code: kvpb.ErrorCode_OVERLOADED, Message: fmt.Sprintf("node %s is asked for "+
			"more than it can do: %v; try again more slowly", g.config.Node, full),
			RetryAfterMicros: uint64(max(full.Wait, time.Millisecond).Microseconds())}
	}
	g.config.Server.Refuse(p.Request, e, p.Reply)
}

// priorityOf is the priority of a request. Work of the background has the lowest, whatever it says.
// A request that takes locks has at least the normal one: others may wait for what its transaction
// has locked before.
func priorityOf(q *kvpb.Request) workqueue.Priority {
	low := q.Background || q.Priority == kvpb.Priority_PRIORITY_LOW
	switch {
	case low && command.Of(q) != command.Prepare:
		return workqueue.Low
	case q.Priority == kvpb.Priority_PRIORITY_HIGH:
		return workqueue.High
	}
	return workqueue.Normal
}

// partitionOf is the partition of a request, or the first one.
func partitionOf(q *kvpb.Request) uint64 {
	if all := q.GetMultiGet().GetPartitions(); len(all) > 0 {
		return all[0].GetPartition()
	}
	if all := q.GetMergeScan().GetPartitions(); len(all) > 0 {
		return all[0].GetPartition()
	}
	return q.Partition
}

// joins returns the user of a client that has one request more in the queue.
func (g *Gate) joins(of uint64) string {
	g.mu.Lock()
	if c := g.mu.clients[of]; c != nil {
		defer g.mu.Unlock()
		c.waiting++
		return c.user
	}
	g.mu.Unlock()
	user := ""
	if g.config.Client != nil {
		_, user = g.config.Client(of)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.mu.clients[of]
	if c == nil {
		c = &client{user: user}
		g.mu.clients[of] = c
	}
	c.waiting++
	return c.user
}

// leaves notes that a client has one request less in the queue.
func (g *Gate) leaves(of uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.mu.clients[of]; c != nil {
		if c.waiting--; c.waiting == 0 {
			delete(g.mu.clients, of)
		}
	}
}

func (g *Gate) awake() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// Run begins requests that have waited, until ctx ends. Those that wait then are refused.
func (g *Gate) Run(ctx context.Context) {
	if g.queue == nil {
		return
	}
	look := time.NewTimer(time.Hour)
	defer look.Stop()
	var expired time.Time // when requests were expired last
	for {
		select {
		case <-ctx.Done():
			for _, w := range g.queue.Close() {
				g.leaves(w.pending.Client)
				g.config.Server.Refuse(w.pending.Request, &kvpb.Error{
					Code:    kvpb.ErrorCode_NODE_UNHEALTHY,
					Message: fmt.Sprintf("node %s is closing", g.config.Node)}, w.pending.Reply)
			}
			g.running.Wait()
			return
		case <-g.wake:
		case <-look.C:
		}
		now := time.Now()
		if now.Sub(expired) >= expireEvery {
			expired = now
			g.expire(now)
		}
		for g.take(now) {
			now = time.Now()
		}
		if g.queue.Figures().Total() > 0 {
			look.Reset(lookAgain)
		}
	}
}

// lookAgain is how long requests wait at most until it is looked again whether they may begin. The
// limit may rise while no request is answered.
const lookAgain = 20 * time.Millisecond

// expireEvery is the time between two looks for requests whose callers have stopped waiting.
const expireEvery = 50 * time.Millisecond

// expire answers the requests whose callers have stopped waiting. They would take turns of others.
func (g *Gate) expire(now time.Time) {
	for _, w := range g.queue.Expire(func(w waiting) bool { return w.pending.Expired(now) }, now) {
		waited := now.Sub(w.pending.Arrived)
		g.leaves(w.pending.Client)
		g.config.Metrics.waited(w.priority, waited)
		g.expired(&w.pending, waited)
	}
}

// take begins what may begin. It returns false if nothing may.
func (g *Gate) take(now time.Time) bool {
	items := g.queue.Take(mostTaken, now)
	if len(items) == 0 {
		return false
	}
	// Requests of one client make one pass. The order of one client's requests stays.
	slices.SortStableFunc(items, func(a, b workqueue.Item[waiting]) int {
		x, y := a.Request.pending.Client, b.Request.pending.Client
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	works := make([]rpc.Work, 0, 8)
	for len(items) > 0 {
		of := items[0].Request.pending.Client
		var pass []config.Pending
		taken := 0
		for taken < len(items) && items[taken].Request.pending.Client == of {
			item := &items[taken]
			taken++
			g.leaves(of)
			g.config.Metrics.waited(item.Request.priority, item.Waited)
			p := item.Request.pending
			p.Reply = g.counted(item.Began, p.Reply)
			if p.Expired(now) {
				g.expired(&p, item.Waited)
				continue
			}
			p.Share = item.Share
			pass = append(pass, p)
		}
		if len(pass) > 0 {
			works = append(works, g.config.Server.Begin(of, pass))
		}
		g.queue.Taken(taken)
		items = items[taken:]
	}
	for _, w := range works {
		g.run(w)
	}
	return true
}

// expired answers a request whose caller no longer waits.
func (g *Gate) expired(p *config.Pending, waited time.Duration) {
	g.config.Metrics.expired.Inc()
	g.config.Server.Refuse(p.Request, &kvpb.Error{Code: kvpb.ErrorCode_OVERLOADED,
		Message: fmt.Sprintf("node %s is asked for more than it can do: the request waited in the "+
			"queue for %s, and did not run", g.config.Node, waited.Round(time.Millisecond))}, p.Reply)
}

// run does what is left to do of requests.
func (g *Gate) run(w rpc.Work) {
	if w == nil {
		return
	}
	g.running.Go(func() {
		w.Run()
		w.Done()
	})
}

// Answered charges a tenant for a request that has waited, before it is answered.
func (g *Gate) Answered(p *config.Pending) {
	if p.Share != nil {
		g.queue.Charge(p.Share, p.Timing.Spent(timing.Evaluate), mostCostOf(p.Request))
	}
}

// mostCostOf is the processor time that the evaluation of a request takes at most, on a slow
// processor: that of a page of a scan, of the keys that a count looks at, or of the keys that the
// request names.
func mostCostOf(q *kvpb.Request) time.Duration {
	most := costOfPage + time.Duration(q.SizeVT())*mostCostOfByte
	if c := q.GetCount(); c != nil {
		most += time.Duration(request.CountRows(c.MaxRows)) * mostCostOfCounted
	}
	return most
}

const (
	costOfPage        = 25 * time.Millisecond
	mostCostOfByte    = 500 * time.Nanosecond
	mostCostOfCounted = 2 * time.Microsecond
)
