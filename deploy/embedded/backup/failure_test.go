package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/job"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/backup/targettest"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/backuppb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// An error of a node ends a backup or is tried again, and says what to do.
func TestFailures(t *testing.T) {
	m := new(Maker)
	collected := failure(fmt.Errorf("reading: %w",
		&route.Error{Code: kvpb.ErrorCode_TIMESTAMP_TOO_OLD}))
	if status.Code(collected) != codes.OutOfRange {
		t.Errorf("collected history: %v", collected)
	}
	full := &manifest.Keyspace{Name: "fruit"}
	next := &manifest.Keyspace{Name: "fruit", After: manifest.At(hlc.Timestamp{Wall: 1})}
	for ks, words := range map[*manifest.Keyspace]string{full: "--keep-history",
		next: "Make a full backup"} {
		err := tooOld(ks, collected)
		if !errors.Is(err, job.ErrTooOld) || m.Passing(err) || !strings.Contains(err.Error(), words) ||
			!strings.Contains(err.Error(), `"fruit"`) {
			t.Errorf("%v", err)
		}
	}
	for err, passes := range map[error]bool{
		target.ErrUnavailable: true, target.ErrFull: false, target.ErrRefused: false,
		target.ErrInvalid: false, target.ErrNotFound: false, archive.ErrCorrupt: false,
		archive.ErrNoIdentity: false, manifest.ErrBroken: false,
		&route.Error{Code: kvpb.ErrorCode_NOT_LEADER}: true,
	} {
		if got := m.Passing(ofNode(failure(fmt.Errorf("it failed: %w", err)))); got != passes {
			t.Errorf("%v: passing is %v", err, got)
		}
	}
}

// A directory that is not shared ends a backup; a target that is slow to show an object does not.
func TestTargetIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := targettest.NewMemory()
		w := NewWorker(WorkerConfig{Self: func() (uint64, keys.NodeID) { return 7, 1 },
			Open: func(context.Context, string) (target.Target, error) { return store, nil }})
		r := &backuppb.CheckTargetRequest{Cluster: 7, Node: 1, Object: "a", Content: []byte("b")}
		_, err := w.CheckTarget(t.Context(), r)
		if err == nil || new(Maker).Passing(fmt.Errorf("node 1: %w", ofNode(err))) {
			t.Errorf("not shared: %v", err)
		}
		time.AfterFunc(5*time.Second, func() { store.Set("a", []byte("b")) })
		if _, err := w.CheckTarget(t.Context(), r); err != nil {
			t.Errorf("slow: %v", err)
		}
	})
}

// A keyspace that the cluster cannot have ends a restore; a change of the core's leader does not.
func TestKeyspaceIsNotCreated(t *testing.T) {
	m := new(Maker)
	if err := notCreated("fruit", status.Error(codes.FailedPrecondition,
		"quotas need a level")); m.Passing(err) {
		t.Errorf("the level: %v", err)
	}
	for _, err := range []error{hint.Error(codes.FailedPrecondition, "not the leader",
		&clusterpb.CoreHint{}), hint.Unavailable("there is no leader")} {
		if err := notCreated("fruit", err); !m.Passing(err) {
			t.Errorf("another leader: %v", err)
		}
	}
}

// A full target is full for all nodes, and a node that has no room for a request will have some.
func TestErrorsOfNodes(t *testing.T) {
	m := new(Maker)
	full := ofNode(failure(fmt.Errorf("writing: %w", target.ErrFull)))
	if !errors.Is(full, target.ErrFull) || m.Passing(full) {
		t.Errorf("a full target: %v", full)
	}
	if err := ofNode(status.Error(codes.ResourceExhausted, "no room")); !m.Passing(err) {
		t.Errorf("a node without room: %v", err)
	}
	if err := ofNode(failure(fmt.Errorf("reading: %w", target.ErrRefused))); m.Passing(err) {
		t.Errorf("a node that is refused: %v", err)
	}
	if err := ofNode(nil); err != nil {
		t.Errorf("no error: %v", err)
	}
}
