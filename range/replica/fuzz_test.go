package replica

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// sampleEntries are entries that a leader made.
func sampleEntries(t testing.TB) [][]byte {
	r, g, done := benchReplica(t)
	defer done()
	g.keep = true
	submit := func(commands ...*kvpb.Request) {
		for i, q := range commands {
			q.Generation, q.Term, q.Sequence = 1, 1, uint64(len(g.kept)+i+1)
			r.Submit([]config.Pending{{Client: 1, Request: q, Reply: func(*kvpb.Response) {},
				Arrived: time.Now()}})
		}
		r.node.Pool.Wait()
		r.node.Long.Wait()
		r.node.Pool.Wait()
		for g.deliver() {
			r.node.Pool.Wait()
			r.node.Long.Wait()
			r.node.Pool.Wait()
		}
	}
	submit(&kvpb.Request{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("k"),
		Value: []byte("v")}}})
	submit(&kvpb.Request{Command: &kvpb.Request_WriteBatch{WriteBatch: &kvpb.WriteBatchRequest{
		Operations: []*kvpb.WriteOperation{
			{Key: []byte("a"), Value: make([]byte, 300)}, {Key: []byte("b"), Delete: true}}}}})
	submit(&kvpb.Request{Command: &kvpb.Request_DeleteRange{DeleteRange: &kvpb.DeleteRangeRequest{}}})
	var samples [][]byte
	for _, e := range g.kept {
		samples = append(samples, e.Data)
	}
	if len(samples) < 3 {
		t.Fatalf("%d entries", len(samples))
	}
	return samples
}

// The entries of a leader decode, and encode to the same bytes.
func TestEntriesOfLeaderDecode(t *testing.T) {
	for _, sample := range sampleEntries(t) {
		e, err := proposal.Decode(sample)
		if err != nil {
			t.Fatal(err)
		}
		if again := e.Encode(); !bytes.Equal(again, sample) {
			t.Fatalf("%x decodes and encodes to %x", sample, again)
		}
	}
}

// An entry that is not one marks the replica failed; it does not panic, and nothing of it is
// applied.
func FuzzApply(f *testing.F) {
	for _, sample := range sampleEntries(f) {
		f.Add(sample)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, _, done := benchReplica(t)
		defer done()
		_, before, err := r.Checksum()
		if err != nil {
			t.Fatal(err)
		}
		if r.Apply([]group.Entry{{Index: 2, Term: 2, Data: data}}) == nil {
			if index, _ := r.Applied(); index != 2 {
				t.Fatalf("applied index %d", index)
			}
			return
		}
		if _, after, err := r.Checksum(); err != nil || after != before {
			t.Fatalf("a refused entry changed the state: %v", err)
		}
		if r.Apply([]group.Entry{{Index: 2, Term: 2}}) == nil {
			t.Fatal("a failed replica applies")
		}
	})
}

// sampleSnapshot is a small snapshot of index and term.
func sampleSnapshot(t testing.TB) (stream []byte, index, term uint64) {
	r, g, done := benchReplica(t)
	defer done()
	for i := range 5 {
		r.Submit([]config.Pending{{Client: 1, Request: put(i, uint64(i+1), nil),
			Reply: func(*kvpb.Response) {}, Arrived: time.Now()}})
		for g.deliver() {
		}
	}
	s, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var b bytes.Buffer
	if err := s.Write(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), s.Index(), s.Term()
}

// A snapshot is taken as a whole or not at all.
func FuzzSnapshot(f *testing.F) {
	stream, index, term := sampleSnapshot(f)
	f.Add(stream)
	f.Add(stream[:40])
	f.Fuzz(func(t *testing.T, data []byte) {
		r, _, done := benchReplica(t)
		defer done()
		staged, err := r.StageSnapshot(context.Background(), index, term, bytes.NewReader(data))
		if err != nil {
			return
		}
		if err := staged.Install(); err != nil {
			t.Fatal(err)
		}
		again, err := r.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		var b bytes.Buffer
		if err := again.Write(context.Background(), &b); err != nil || !bytes.Equal(b.Bytes(), data) {
			t.Fatalf("a snapshot that was installed reads back differently: %v", err)
		}
	})
}
