package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// routes sends misrouted requests straight to the servers: requests with a wrong generation of
// their partition, or for a partition that is gone. The client of package kv would correct the
// route first.
//
// INVARIANT: a server refuses such a request, whatever else is wrong, and writes nothing.
type routes struct {
	w *World
	// partitions are the partitions of the keyspace "routes" when it was created. Nothing is ever
	// written to this keyspace.
	partitions []admin.PartitionInfo
	sent       int
	streams    uint64
	dialer     *client.Dialer
	conns      map[int]*client.BatchConn
}

const (
	routesName = "routes"
	// routesPause is the longest time between two requests.
	routesPause = 3 * time.Second
	// routesPatience is how long drive waits for an answer.
	routesPatience = time.Second
)

// newRoutes creates the keyspace.
func newRoutes(ctx context.Context, w *World) (*routes, error) {
	r := &routes{w: w}
	client, err := w.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if _, err = client.CreateKeyspace(ctx, routesName, kv.Hash(2)); err != nil {
		return nil, err
	}
	r.partitions, err = admin.New(client).Partitions(ctx, routesName)
	return r, err
}

// open prepares connections, and hangUp closes them.
func (r *routes) open() {
	r.dialer = client.NewDialer(client.DialerConfig{Dial: r.w.Cluster.Dialer("lost")})
	r.conns = make(map[int]*client.BatchConn)
}

func (r *routes) hangUp() {
	for _, c := range r.conns {
		c.Close()
	}
	if err := r.dialer.Close(); err != nil {
		r.w.Violation("closing a dialer: %v", err)
	}
}

// drive sends one request after the other, until done is closed.
func (r *routes) drive(done <-chan struct{}, random *rand.Rand) {
	r.open()
	defer r.hangUp()
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(random.Int64N(int64(routesPause)))):
		}
		server := random.IntN(r.w.Cluster.Servers())
		p := r.partitions[random.IntN(len(r.partitions))]
		epoch, generation := "an older one", p.Generation-1
		if random.IntN(2) == 0 {
			epoch, generation = "a younger one", p.Generation+1+random.Uint64N(3)
		}
		r.refused(context.Background(), server, p, generation, random, epoch)
	}
}

// refused sends one misrouted request to a server, and reports a violation if the server answers.
// The request has the term of the server's replica, if there is a replica.
func (r *routes) refused(ctx context.Context, server int, p admin.PartitionInfo, generation uint64,
	random *rand.Rand, why string) {
	process := r.w.Cluster.Process(server)
	if process == nil {
		return
	}
	term := uint64(1)
	for _, replica := range process.Replicas() {
		if replica.Partition == p.ID {
			term = replica.Term
		}
	}
	conn, err := r.conn(server)
	if err != nil {
		r.w.Violation("connecting to server %d: %v", server, err)
		return
	}
	r.sent++
	q := &kvpb.Request{Partition: p.ID, Generation: generation, Term: term,
		Sequence: uint64(r.sent)}
	r.command(q, random)
	attempt, cancel := context.WithTimeout(ctx, routesPatience)
	response, err := conn.Do(attempt, q)
	cancel()
	switch {
	case err != nil:
	case refuses(response):
		r.w.count("misrouted requests refused")
	default:
		r.w.Violation("server %d answers a %T that was routed to partition %d, of generation "+
			"%d, by generation %d (%s): %v",
			server, q.Command, p.ID, p.Generation, generation, why, response)
	}
}

// refuses says whether a response is a refusal. The answer to a scan of several partitions has a
// refusal for each partition. The requests here have one partition.
func refuses(r *kvpb.Response) bool {
	return r.Error != nil ||
		len(r.GetMergeScan().GetRefused()) > 0
}

// command draws the command of a request.
func (r *routes) command(q *kvpb.Request, random *rand.Rand) {
	// About half of the keys belong to the other partition, so some requests have a key that fits.
	key := fmt.Appendf(nil, "key%d", random.IntN(8))
	switch random.IntN(7) {
	case 0:
		q.Command = &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: key}}
	case 1:
		q.Command = &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: key,
			At: &kvpb.Timestamp{Wall: uint64(time.Now().Add(-time.Second).UnixNano())}}}
	case 2:
		q.Command = &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: key, Value: []byte("lost")}}
	case 3:
		q.Command = &kvpb.Request_CompareAndSwap{CompareAndSwap: &kvpb.CompareAndSwapRequest{
			Key: key, Expected: &kvpb.CompareAndSwapRequest_Absent{Absent: true},
			NewValue: []byte("lost")}}
	case 4:
		q.Command = &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{MaxRows: 10}}
	case 5:
		q.Command = &kvpb.Request_DeleteRange{DeleteRange: &kvpb.DeleteRangeRequest{}}
	default:
		q.Command = &kvpb.Request_MergeScan{MergeScan: &kvpb.MergeScanRequest{
			Partitions: []*kvpb.PartitionRoute{{Partition: q.Partition, Generation: q.Generation,
				Term: q.Term}},
			At: &kvpb.Timestamp{Wall: uint64(time.Now().Add(-time.Second).UnixNano())},
		}}
	}
}

// conn returns the connection to a server.
func (r *routes) conn(server int) (*client.BatchConn, error) {
	if c := r.conns[server]; c != nil {
		return c, nil
	}
	r.conns[server] = client.NewBatchConn(client.BatchConfig{
		Dialer: r.dialer, Address: r.w.Cluster.Endpoints()[server], Client: routesClient,
		Stream: func() uint64 { r.streams++; return r.streams },
	})
	return r.conns[server], nil
}

// routesClient is the id of this client, which sends one request at a time.
const routesClient = 0x1057

// check checks that nothing was written.
func (r *routes) check(ctx context.Context) {
	client, err := r.w.Open(ctx)
	if err != nil {
		r.w.Violation("opening a client: %v", err)
		return
	}
	defer client.Close()
	for pair, err := range client.Keyspace(routesName).Scan(ctx) {
		if err != nil {
			r.w.Violation("scanning %q: %v", routesName, err)
			return
		}
		r.w.Violation("%s=%q was written by a request that was routed wrongly", pair.Key,
			pair.Value)
	}
}
