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

// rawReader reads keys from one server and no other, and does not stop when the server should not
// be asked any more: it goes on sending with the route it once learned while the server is paused,
// so that the answers of a leader that wakes up and believes in itself would be seen. Each answer
// is checked against what was known when its request left.
type rawReader struct {
	server  *fleet.Server
	targets []rawTarget
	// interval is the time between two requests; requests are sent without waiting for answers.
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

// rawTarget is a key, where it was when the reader learned its route, and the check of what is
// read.
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

// maxOutstanding bounds what waits for a paused server; further requests wait for answers.
const maxOutstanding = 100_000

func newRawReader(server *fleet.Server, interval time.Duration, targets []rawTarget) *rawReader {
	r := &rawReader{server: server, targets: targets, interval: interval}
	r.mu.outstanding = make(map[uint64]rawRequest)
	r.mu.refusals = make(map[kvpb.ErrorCode]int)
	return r
}

// run reads until ctx ends. A stream that breaks is opened again; its outstanding requests are
// forgotten.
func (r *rawReader) run(ctx context.Context) {
	for ctx.Err() == nil {
		// Any error means that the server is not there now, which is what this test is about.
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
		// The window of HTTP/2 bounds how much a paused server is sent; then Send waits, and ctx
		// ends it.
		if err := stream.Send(&kvpb.BatchRequest{Requests: []*kvpb.Request{request}}); err != nil {
			return err
		}
	}
}

// remember notes what is known as the request leaves.
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

// result is what was counted, and the answers that cannot be.
func (r *rawReader) result() (answered int, refusals map[kvpb.ErrorCode]int, violated []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	refusals = make(map[kvpb.ErrorCode]int)
	for code, n := range r.mu.refusals {
		refusals[code] = n
	}
	return r.mu.answered, refusals, append([]error(nil), r.mu.violated...)
}

// encodeNumber and decodeNumber are the values that Monotonic keys hold: a number, then filler up
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
