package faults

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// rawReader reads keys from one server only. It keeps sending with the route that it learned once,
// even if the server is paused or does not lead any more. So it sees the answers of a paused leader
// that continues and still believes that it leads. Each answer is checked against what was known
// when its request was sent.
type rawReader struct {
	server  *fleet.Server
	targets []rawTarget
	// interval is the time between two requests. The reader does not wait for an answer before the
	// next request.
	interval time.Duration

	mu struct {
		sync.Mutex
		outstanding map[uint64]rawRequest
		answered    int
		refused     int
		// refusals counts the refusals by code.
		refusals map[kvpb.ErrorCode]int
		violated []error
	}
}

// rawTarget is a key, with its route when the reader learned it, and the check of its value.
type rawTarget struct {
	key       []byte
	partition *clusterpb.Partition
	term      uint64
	check     *history.Monotonic
}

type rawRequest struct {
	target rawTarget
	floor  uint64
	sent   time.Time
}

// maxOutstanding bounds the requests that wait for a paused server. At the bound the reader waits
// for answers.
const maxOutstanding = 100_000

func newRawReader(server *fleet.Server, interval time.Duration, targets []rawTarget) *rawReader {
	r := &rawReader{server: server, targets: targets, interval: interval}
	r.mu.outstanding = make(map[uint64]rawRequest)
	r.mu.refusals = make(map[kvpb.ErrorCode]int)
	return r
}

// run reads until ctx ends. It opens a broken stream again, and forgets the outstanding requests.
func (r *rawReader) run(ctx context.Context) {
	for ctx.Err() == nil {
		// Any error means that the server is not reachable now, which this test causes.
		_ = r.stream(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(r.interval):
		}
	}
}

func (r *rawReader) stream(ctx context.Context) error {
	connection, err := grpc.NewClient("passthrough:///"+r.server.Listen,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := kvpb.NewKVClient(connection).Batch(ctx)
	if err != nil {
		return err
	}
	hello := &kvpb.BatchRequest{Hello: &kvpb.Hello{Client: rand.Uint64() | 1, Stream: 1}}
	if err := stream.Send(hello); err != nil {
		return err
	}
	r.mu.Lock()
	clear(r.mu.outstanding)
	r.mu.Unlock()
	var receiver sync.WaitGroup
	receiver.Go(func() {
		defer cancel()
		for {
			response, err := stream.Recv()
			if err != nil {
				return
			}
			for _, answer := range response.Responses {
				r.take(answer)
			}
		}
	})
	defer receiver.Wait()
	defer cancel()
	ticker := time.NewTicker(r.interval)
	defer ticker.Stop()
	for id := uint64(1); ; id++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		target := r.targets[id%uint64(len(r.targets))]
		request := &kvpb.Request{
			Id:         id,
			Partition:  target.partition.Id,
			Generation: target.partition.Generation,
			Term:       target.term,
			Sequence:   id,
			Command:    &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: target.key}},
		}
		if !r.remember(id, target) {
			continue
		}
		// HTTP/2 flow control bounds the data sent to a paused server. At the bound Send waits
		// until ctx ends.
		if err := stream.Send(&kvpb.BatchRequest{Requests: []*kvpb.Request{request}}); err != nil {
			return err
		}
	}
}

// remember records what is known when the request is sent.
func (r *rawReader) remember(id uint64, target rawTarget) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.outstanding) >= maxOutstanding {
		return false
	}
	r.mu.outstanding[id] = rawRequest{target: target, floor: target.check.Known(), sent: time.Now()}
	return true
}

func (r *rawReader) take(answer *kvpb.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	request, ok := r.mu.outstanding[answer.Id]
	if !ok {
		r.mu.violated = append(r.mu.violated,
			fmt.Errorf("%s answered request %d, which was not asked", r.server.Name, answer.Id))
		return
	}
	delete(r.mu.outstanding, answer.Id)
	if answer.Error != nil {
		r.mu.refused++
		r.mu.refusals[answer.Error.Code]++
		return
	}
	r.mu.answered++
	n, err := decodeNumber(answer.GetGet().GetFound(), answer.GetGet().GetValue())
	if err == nil {
		err = request.target.check.Read(request.floor, n)
	}
	if err != nil {
		r.mu.violated = append(r.mu.violated,
			fmt.Errorf("%s, key %q, partition %d, term %d, asked %v ago: %w",
				r.server.Name, request.target.key, request.target.partition.Id, request.target.term,
				time.Since(request.sent).Round(time.Millisecond), err))
	}
}

// result returns the counts, and the violations.
func (r *rawReader) result() (answered int, refusals map[kvpb.ErrorCode]int, violated []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	refusals = make(map[kvpb.ErrorCode]int)
	for code, n := range r.mu.refusals {
		refusals[code] = n
	}
	return r.mu.answered, refusals, append([]error(nil), r.mu.violated...)
}

// encodeNumber and decodeNumber convert the values of Monotonic keys: a number, then a filling up
// to size.
func encodeNumber(n uint64, size int) []byte {
	value := make([]byte, max(size, 8))
	binary.BigEndian.PutUint64(value, n)
	return value
}

func decodeNumber(found bool, value []byte) (uint64, error) {
	switch {
	case !found:
		return 0, nil
	case len(value) < 8:
		return 0, fmt.Errorf("a value of %d bytes, which no client wrote", len(value))
	default:
		return binary.BigEndian.Uint64(value), nil
	}
}
