package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

func snapshotHeader() *peerpb.SnapshotHeader {
	return &peerpb.SnapshotHeader{Message: &peerpb.RaftMessage{Group: 5,
		Snapshot: &peerpb.SnapshotMeta{Index: 9, Term: 2}}}
}

// readSnapshots has the host keep what it is sent.
func readSnapshots(h *peerHost) <-chan []byte {
	got := make(chan []byte, 10)
	h.snapshot = func(_ context.Context, from uint64, header *peerpb.SnapshotHeader,
		r io.Reader) error {
		if from != header.FromHost || header.Message.Snapshot.Index != 9 {
			return fmt.Errorf("from %d: header %v", from, header)
		}
		b, err := io.ReadAll(r)
		if err == nil {
			got <- b
		}
		return err
	}
	return got
}

func TestSnapshotArrives(t *testing.T) {
	for _, n := range []network{{}, {mem: memnet.New()}} {
		hosts := newHosts(t, n, 2)
		got := readSnapshots(hosts[1])
		for _, size := range []int{0, 1, snapshotChunk - 1, snapshotChunk, snapshotChunk + 1,
			5*snapshotChunk + 7} {
			data := make([]byte, size)
			_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(data)
			err := hosts[0].transport.SendSnapshot(t.Context(), 2, snapshotHeader(),
				func(w io.Writer) error {
					for rest := data; len(rest) > 0; { // in uneven pieces
						piece := rest[:min(len(rest), 100_000)]
						if _, err := w.Write(piece); err != nil {
							return err
						}
						rest = rest[len(piece):]
					}
					return nil
				})
			if err != nil {
				t.Fatal(err)
			}
			if b := <-got; !bytes.Equal(b, data) {
				t.Fatalf("%d bytes became %d", size, len(b))
			}
		}
		if n := counterValue(t, hosts[0].transport.metrics.sentSnapshots); n != 6 {
			t.Fatalf("%v counted", n)
		}
	}
}

// Whatever goes wrong at either side, the sender hears of it, and the receiver never sees a
// snapshot as whole that is not.
func TestSnapshotFails(t *testing.T) {
	hosts := newHosts(t, network{mem: memnet.New()}, 2)
	sender := hosts[0].transport
	data := make([]byte, 3*snapshotChunk)
	writeAll := func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
	t.Run("produced in part", func(t *testing.T) {
		began, seen := make(chan struct{}), make(chan error, 1)
		hosts[1].snapshot = func(_ context.Context, _ uint64, _ *peerpb.SnapshotHeader,
			r io.Reader) error {
			close(began)
			_, err := io.Copy(io.Discard, r)
			seen <- err
			return err
		}
		failure := errors.New("disk is gone")
		err := sender.SendSnapshot(t.Context(), 2, snapshotHeader(), func(w io.Writer) error {
			if err := writeAll(w); err != nil {
				return err
			}
			// A stream that is given up before the receiver has begun may never reach it.
			<-began
			return failure
		})
		if !errors.Is(err, failure) {
			t.Fatal(err)
		}
		if err := <-seen; err == nil {
			t.Fatal("the receiver took it for whole")
		}
	})
	t.Run("refused at once", func(t *testing.T) {
		hosts[1].snapshot = func(context.Context, uint64, *peerpb.SnapshotHeader, io.Reader) error {
			return errors.New("no such group")
		}
		err := sender.SendSnapshot(t.Context(), 2, snapshotHeader(), func(w io.Writer) error {
			for {
				if err := writeAll(w); err != nil {
					return err
				}
			}
		})
		if !errors.Is(err, ErrSnapshotRefused) || !contains(err, "no such group") {
			t.Fatal(err)
		}
	})
	t.Run("not read to its end", func(t *testing.T) {
		hosts[1].snapshot = func(_ context.Context, _ uint64, _ *peerpb.SnapshotHeader,
			r io.Reader) error {
			_, err := io.ReadFull(r, make([]byte, len(data)))
			return err
		}
		if err := sender.SendSnapshot(t.Context(), 2, snapshotHeader(), writeAll); !errors.Is(err,
			ErrSnapshotRefused) {
			t.Fatal(err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		hosts[1].snapshot = func(ctx context.Context, _ uint64, _ *peerpb.SnapshotHeader,
			r io.Reader) error {
			cancel()
			<-ctx.Done()
			_, err := io.Copy(io.Discard, r)
			return err
		}
		err := sender.SendSnapshot(ctx, 2, snapshotHeader(), func(w io.Writer) error {
			for {
				if err := writeAll(w); err != nil {
					return err
				}
			}
		})
		if !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
			t.Fatal(err)
		}
	})
	t.Run("unknown host", func(t *testing.T) {
		if err := sender.SendSnapshot(t.Context(), 9, snapshotHeader(), writeAll); !contains(err,
			"address of node 9 is not known") {
			t.Fatal(err)
		}
	})
}

func chunk(sequence uint64, data string, last bool) *peerpb.SnapshotChunk {
	return &peerpb.SnapshotChunk{Sequence: sequence, Data: []byte(data),
		Checksum: crc32.Checksum([]byte(data), castagnoli), Last: last}
}

func withHeader(c *peerpb.SnapshotChunk,
	change func(*peerpb.SnapshotHeader)) *peerpb.SnapshotChunk {
	c.Header = snapshotHeader()
	c.Header.Cluster, c.Header.FromHost, c.Header.ToHost = testCluster, 2, 1
	if change != nil {
		change(c.Header)
	}
	return c
}

// A stream of chunks that is damaged in any way is refused, with the reason.
func TestSnapshotDamaged(t *testing.T) {
	n := network{mem: memnet.New()}
	hosts := newHosts(t, n, 1)
	got := readSnapshots(hosts[0])
	client := peerpb.NewPeerClient(mustConn(t, n.dialer(t, "x"), hosts[0].addr))
	flipped := chunk(1, "b", false)
	flipped.Data[0] ^= 1
	for _, test := range []struct {
		name   string
		chunks []*peerpb.SnapshotChunk
		reason string
	}{
		{"whole", []*peerpb.SnapshotChunk{withHeader(chunk(0, "a", false), nil),
			chunk(1, "b", true)}, ""},
		{"nothing", nil, "without a chunk"},
		{"no header", []*peerpb.SnapshotChunk{chunk(0, "a", true)}, "must carry its header"},
		{"no message", []*peerpb.SnapshotChunk{withHeader(chunk(0, "a", true),
			func(h *peerpb.SnapshotHeader) { h.Message = nil })}, "must carry its header"},
		{"other cluster", []*peerpb.SnapshotChunk{withHeader(chunk(0, "a", true),
			func(h *peerpb.SnapshotHeader) { h.Cluster++ })}, "contradicts its stream"},
		{"other sender", []*peerpb.SnapshotChunk{withHeader(chunk(0, "a", true),
			func(h *peerpb.SnapshotHeader) { h.FromHost++ })}, "contradicts its stream"},
		{"cut short", []*peerpb.SnapshotChunk{withHeader(chunk(0, "a", false), nil),
			chunk(1, "b", false)}, "cut short before chunk 2"},
		{"gap", []*peerpb.SnapshotChunk{withHeader(chunk(0, "a", false), nil), chunk(2, "c", true)},
			"chunk 2 of snapshot came in place of chunk 1"},
		{"repeated", []*peerpb.SnapshotChunk{withHeader(chunk(0, "a", false), nil),
			chunk(0, "a", true)}, "chunk 0 of snapshot came in place of chunk 1"},
		{"does not begin at 0", []*peerpb.SnapshotChunk{withHeader(chunk(1, "a", true), nil)},
			"chunk 1 of snapshot came in place of chunk 0"},
		{"flipped bit", []*peerpb.SnapshotChunk{withHeader(chunk(0, "a", false), nil), flipped,
			chunk(2, "c", true)}, "chunk 1 of snapshot is corrupt"},
	} {
		t.Run(test.name, func(t *testing.T) {
			stream, err := client.Snapshot(metadata.AppendToOutgoingContext(t.Context(), realmKey,
				"node", clusterKey, fmt.Sprintf("%x", testCluster), fromKey, "2", toKey, "1"))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range test.chunks {
				if err := stream.Send(c); err != nil && !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
			}
			result, err := stream.CloseAndRecv()
			switch {
			case test.reason == "":
				if err != nil || !result.Accepted || string(<-got) != "ab" {
					t.Fatal(result, err)
				}
			case err == nil && (result.Accepted || !contains(errors.New(result.Reason), test.reason)):
				t.Fatal(result)
			case err != nil && !contains(err, test.reason):
				t.Fatal(err)
			}
			if len(got) != 0 {
				t.Fatal("accepted")
			}
		})
	}
}

// All snapshots of a transport together keep to its rate; a bounded number runs at a time, on both
// sides.
func TestSnapshotThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := newHosts(t, network{mem: memnet.New()}, 3, func(c *Config) {
			c.SnapshotBytesPerSecond = 4 * snapshotChunk
			c.MaxSnapshots = 2
		})
		got := readSnapshots(hosts[1])
		start := time.Now()
		done := make(chan error, 4)
		for range 4 {
			go func() {
				done <- hosts[0].transport.SendSnapshot(t.Context(), 2, snapshotHeader(),
					func(w io.Writer) error {
						_, err := w.Write(make([]byte, 10*snapshotChunk))
						return err
					})
			}()
		}
		time.Sleep(time.Second)
		// Two are under way, so a third from elsewhere is refused.
		if err := hosts[2].transport.SendSnapshot(t.Context(), 2, snapshotHeader(),
			func(io.Writer) error { return nil }); status.Code(
			errors.Unwrap(err)) != codes.ResourceExhausted {
			t.Fatal(err)
		}
		// And a fifth from here waits for its turn only as long as its context.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := hosts[0].transport.SendSnapshot(ctx, 2, snapshotHeader(), nil); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Fatal(err)
		}
		for range 4 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			<-got
		}
		if took := time.Since(start); took < 9*time.Second || took > 11*time.Second {
			t.Fatalf("10 s worth of bytes took %v", took)
		}
	})
}

// Close of either side ends a snapshot in progress.
func TestSnapshotClose(t *testing.T) {
	for _, closing := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			hosts := newHosts(t, network{mem: memnet.New()}, 2)
			seen := make(chan error, 1)
			hosts[1].snapshot = func(_ context.Context, _ uint64, _ *peerpb.SnapshotHeader,
				r io.Reader) error {
				_, err := io.Copy(io.Discard, r)
				seen <- err
				return err
			}
			done := make(chan error, 1)
			wait := make(chan struct{})
			go func() {
				done <- hosts[0].transport.SendSnapshot(t.Context(), 2, snapshotHeader(),
					func(w io.Writer) error {
						if _, err := w.Write(make([]byte, snapshotChunk)); err != nil {
							return err
						}
						<-wait
						_, err := w.Write(make([]byte, 100*snapshotChunk))
						return err
					})
			}()
			synctest.Wait()
			go func() { time.Sleep(time.Second); close(wait) }()
			hosts[closing].transport.Close()
			if err := <-done; err == nil {
				t.Fatal("sent in spite of Close")
			}
			if err := <-seen; err == nil {
				t.Fatal("received in spite of Close")
			}
		})
	}
}
