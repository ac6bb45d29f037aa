package meta

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

func TestIDsInKeys(t *testing.T) {
	for _, c := range []struct {
		key    []byte
		digits int
		id     uint64
	}{
		{NodeKey(7), 16, 7},
		{KeyspaceKey(0xabcd), 8, 0xabcd},
		{PartitionKey(3, 1<<63), 16, 1 << 63},
	} {
		if id, err := LastID(c.key, c.digits); err != nil || id != c.id {
			t.Errorf("%s: %d, %v, want %d", c.key, id, err, c.id)
		}
	}
	for _, key := range []string{"", "123", TablePrefix + "node/000000000000000G"} {
		if id, err := LastID([]byte(key), 16); err == nil {
			t.Errorf("%q has the id %d", key, id)
		}
	}
}

// Only one call at a time has the turn. Who waits for it waits no longer than its context, nor than
// the member runs.
func TestTurns(t *testing.T) {
	closing, closes := context.WithCancel(t.Context())
	r := New(closing, nil, 1, nil)
	done, err := r.Turn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	// With a turn that is taken the status of the error is that of the context.
	if _, err := r.Turn(limited); status.Code(err) != codes.DeadlineExceeded {
		t.Fatal(err)
	}
	done()
	if done, err = r.Turn(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer done()
	closes()
	if _, err := r.Turn(t.Context()); status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
}

func TestStatuses(t *testing.T) {
	r := New(t.Context(), nil, 1, nil)
	refused := status.Error(codes.NotFound, "no such thing")
	for _, c := range []struct {
		err    error
		code   codes.Code
		hinted bool
	}{
		{context.Canceled, codes.Canceled, false},
		{store.ErrTooLarge, codes.InvalidArgument, false},
		{refused, codes.NotFound, false},
		{errors.New("anything else"), codes.Unavailable, true},
		{Conflict("keyspaces"), codes.Unavailable, true},
		{UnknownKeyspace("a"), codes.NotFound, false},
		{Malformed([]byte("k"), errors.New("short")), codes.Unavailable, true},
	} {
		err := r.Status(c.err)
		if _, refused, ok := hint.Of(err); status.Code(err) != c.code || refused || ok != c.hinted {
			t.Errorf("%v: %v, hint %v", c.err, err, ok)
		}
	}
	if err := r.CheckCluster(2); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
	if err := r.CheckCluster(1); err != nil {
		t.Error(err)
	}
}

// Text that is not UTF-8 is replaced, wherever it stands; the message itself stays as it is.
func TestEncodeReplacesInvalidText(t *testing.T) {
	n := &clusterpb.Node{Id: 7, Address: "a\xffb", Tags: []string{"ssd", "\xfe"},
		Locality: &clusterpb.Locality{Region: "eu", Zone: "z\xf0"}}
	got := &clusterpb.Node{}
	if err := proto.Unmarshal(Encode(n), got); err != nil {
		t.Fatal(err)
	}
	want := &clusterpb.Node{Id: 7, Address: "a\uFFFDb", Tags: []string{"ssd", "\uFFFD"},
		Locality: &clusterpb.Locality{Region: "eu", Zone: "z\uFFFD"}}
	if !proto.Equal(got, want) {
		t.Errorf("stored is %v, want %v", got, want)
	}
	if n.Address != "a\xffb" || n.Tags[1] != "\xfe" {
		t.Errorf("the message has changed: %v", n)
	}
}
