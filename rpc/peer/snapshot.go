package peer

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// A snapshot travels as chunks, numbered from 0, each with its checksum; the first carries the
// header, the last is marked. The receiver accepts a snapshot only if it ends with the last chunk
// in order. TCP detects most of the same errors, but its checksums do not cover a proxy, or a bug
// in buffering.

// snapshotChunk is the payload of one chunk. About one chunk is in flight at a time, because a
// server grants a stream little more than the message that it receives. With its overhead a chunk
// fits into a buffer of 1 MiB.
const snapshotChunk = 1<<20 - 4<<10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrSnapshotRefused is wrapped by the error of a SendSnapshot that reached the host but was not
// accepted.
var ErrSnapshotRefused = errors.New("snapshot refused")

// SendSnapshot sends one snapshot and waits until the host has accepted or refused it. write
// produces the content; an error of its writer means that the stream is over, and must be returned.
// SendSnapshot fills in the header's cluster and hosts. At most MaxSnapshots are sent at a time;
// further calls wait.
func (t *Transport) SendSnapshot(ctx context.Context, host uint64, h *peerpb.SnapshotHeader,
	write func(io.Writer) error) error {
	if !t.enter() {
		return fmt.Errorf("send snapshot to %s %d: %w", t.config.Realm, host, errTransportClosed)
	}
	defer t.work.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	select {
	case t.sendSlots <- struct{}{}:
		defer func() { <-t.sendSlots }()
	case <-ctx.Done():
		return fmt.Errorf("send snapshot to %s %d: waiting for its turn: %w", t.config.Realm, host,
			ctx.Err())
	}
	t.metrics.sendingSnapshots.Inc()
	defer t.metrics.sendingSnapshots.Dec()
	if err := t.sendSnapshot(ctx, host, h, write); err != nil {
		t.metrics.failedSnapshots.Inc()
		return fmt.Errorf("send snapshot to %s %d: %w", t.config.Realm, host, err)
	}
	t.metrics.sentSnapshots.Inc()
	return nil
}

func (t *Transport) sendSnapshot(ctx context.Context, host uint64, h *peerpb.SnapshotHeader,
	write func(io.Writer) error) error {
	streamContext, conn, err := t.connect(ctx, host)
	if err != nil {
		return err
	}
	stream, err := peerpb.NewPeerClient(conn).Snapshot(streamContext)
	if err != nil {
		return err
	}
	h.Cluster, h.FromHost, h.ToHost = t.config.Cluster(), t.config.Self, host
	w := &snapshotWriter{transport: t, stream: stream, ctx: ctx, header: h,
		buffer: make([]byte, 0, snapshotChunk)}
	if err := write(w); err != nil && w.err == nil {
		// Returning cancels the stream, and the receiver sees an incomplete snapshot.
		return fmt.Errorf("produce it: %w", err)
	}
	w.finish()
	if w.err != nil && !errors.Is(w.err, io.EOF) {
		return w.err
	}
	// If the stream is over already (io.EOF), this returns the reason.
	result, err := stream.CloseAndRecv()
	switch {
	case err != nil:
		return err
	case !result.Accepted:
		return fmt.Errorf("%w: %s", ErrSnapshotRefused, result.Reason)
	}
	return nil
}

// snapshotWriter divides the content into chunks.
type snapshotWriter struct {
	transport *Transport
	stream    peerpb.Peer_SnapshotClient
	ctx       context.Context
	// header is nil once sent.
	header   *peerpb.SnapshotHeader
	sequence uint64
	buffer   []byte
	// err is the first failure of the stream.
	err error
}

// Write implements io.Writer.
func (w *snapshotWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && w.err == nil {
		take := min(len(p), snapshotChunk-len(w.buffer))
		w.buffer = append(w.buffer, p[:take]...)
		p = p[take:]
		if len(w.buffer) == snapshotChunk {
			w.send(false)
		}
	}
	if w.err != nil {
		return n - len(p), fmt.Errorf("snapshot stream: %w", w.err)
	}
	return n, nil
}

// paceSnapshot waits until that many more bytes of snapshots may be sent.
func (t *Transport) paceSnapshot(ctx context.Context, n int) error {
	rate := t.config.SnapshotBytesPerSecond
	if rate <= 0 {
		return ctx.Err() // no limit
	}
	return t.snapshots.Wait(ctx, time.Now(), admission.Worth(n, rate), admission.Low)
}

func (w *snapshotWriter) finish() {
	if w.err == nil {
		w.send(true)
	}
}

func (w *snapshotWriter) send(last bool) {
	if w.err = w.transport.paceSnapshot(w.ctx, len(w.buffer)); w.err != nil {
		return
	}
	w.err = w.stream.Send(&peerpb.SnapshotChunk{
		Header: w.header, Sequence: w.sequence, Data: w.buffer,
		Checksum: crc32.Checksum(w.buffer, castagnoli), Last: last,
	})
	w.transport.metrics.snapshotBytes.Add(float64(len(w.buffer)))
	w.header = nil
	w.sequence++
	w.buffer = w.buffer[:0]
}

// receiveSnapshot receives a snapshot.
func (t *Transport) receiveSnapshot(ctx context.Context, stream peerpb.Peer_SnapshotServer,
	from uint64) error {
	first, err := stream.Recv()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return status.Error(codes.InvalidArgument, "snapshot stream without a chunk")
		}
		return err
	}
	h := first.Header
	if h == nil || h.Message == nil {
		return status.Error(codes.InvalidArgument,
			"the first chunk of a snapshot must carry its header, and that the message")
	}
	if h.Cluster != t.config.Cluster() || h.FromHost != from || h.ToHost != t.config.Self {
		return status.Errorf(codes.FailedPrecondition,
			"snapshot header (cluster %016x, from %d, to %d) contradicts its stream "+
				"(cluster %016x, from %d, to %d)",
			h.Cluster, h.FromHost, h.ToHost, t.config.Cluster(), from, t.config.Self)
	}
	t.metrics.receivingSnapshots.Inc()
	defer t.metrics.receivingSnapshots.Dec()
	// A goroutine receives, so that a handler that reads can stop when the transport closes. The
	// goroutine ends with the stream, soon after this method has returned.
	chunks := make(chan receivedChunk)
	go receiveChunks(ctx, stream, chunks)
	r := newSnapshotReader(ctx, chunks, first)
	err = t.config.Handler.HandleSnapshot(ctx, from, h, r)
	if err == nil && !errors.Is(r.err, io.EOF) {
		err = errors.New("the receiver did not read it to its end")
	}
	if err != nil {
		if ctx.Err() != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		t.config.Logger.Warn("snapshot refused", "from", from, "group", h.Message.Group, "error", err)
		return stream.SendAndClose(&peerpb.SnapshotResult{Reason: err.Error()})
	}
	t.metrics.receivedSnapshots.Inc()
	return stream.SendAndClose(&peerpb.SnapshotResult{Accepted: true})
}

// snapshotReader joins chunks.
type snapshotReader struct {
	ctx    context.Context
	chunks <-chan receivedChunk
	// next is the expected sequence number.
	next uint64
	data []byte
	last bool
	// err is io.EOF after the whole snapshot was read, otherwise the first failure.
	err error
}

type receivedChunk struct {
	chunk *peerpb.SnapshotChunk
	err   error
}

type chunkReceiver interface {
	Recv() (*peerpb.SnapshotChunk, error)
}

// receiveChunks passes chunks on until the context ends or there are no more.
func receiveChunks(ctx context.Context, stream chunkReceiver, chunks chan<- receivedChunk) {
	for {
		chunk, err := stream.Recv()
		select {
		case chunks <- receivedChunk{chunk, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func newSnapshotReader(ctx context.Context, chunks <-chan receivedChunk,
	first *peerpb.SnapshotChunk) *snapshotReader {
	r := &snapshotReader{ctx: ctx, chunks: chunks}
	r.take(first)
	return r
}

// Read implements io.Reader. io.EOF comes only after the last chunk.
func (r *snapshotReader) Read(p []byte) (int, error) {
	for len(r.data) == 0 && r.err == nil {
		if r.last {
			r.err = io.EOF
			break
		}
		select {
		case received := <-r.chunks:
			switch {
			case errors.Is(received.err, io.EOF):
				r.err = fmt.Errorf("snapshot is cut short before chunk %d: %w", r.next, io.ErrUnexpectedEOF)
			case received.err != nil:
				r.err = fmt.Errorf("receive chunk %d of snapshot: %w", r.next, received.err)
			default:
				r.take(received.chunk)
			}
		case <-r.ctx.Done():
			r.err = r.ctx.Err()
		}
	}
	if len(r.data) > 0 {
		n := copy(p, r.data)
		r.data = r.data[n:]
		return n, nil
	}
	return 0, r.err
}

func (r *snapshotReader) take(chunk *peerpb.SnapshotChunk) {
	sum := crc32.Checksum(chunk.Data, castagnoli)
	switch {
	case chunk.Sequence != r.next:
		r.err = fmt.Errorf("chunk %d of snapshot came in place of chunk %d", chunk.Sequence, r.next)
	case sum != chunk.Checksum:
		r.err = fmt.Errorf("chunk %d of snapshot is corrupt: its checksum is %08x, not %08x",
			chunk.Sequence, sum, chunk.Checksum)
	default:
		r.data, r.last = chunk.Data, chunk.Last
		r.next++
	}
}
